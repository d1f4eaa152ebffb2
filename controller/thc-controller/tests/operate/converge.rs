//! Targets hold what was written, whatever others do to them.

use crate::programs::{Site, V1MODEL};

/// Rows that somebody else has changed are found and made again, without anybody's asking.
#[test]
fn rows_that_others_change_are_repaired() {
    let site = Site::with_keys(V1MODEL, "compare = \"1s\"");
    site.create();
    let session = site.join_workers(1);
    for (table, first) in [("members", 7), ("addresses", 7), ("control_plane", 1), ("jobs", 7)] {
        site.strict.delete(table, first);
        site.controller().wait_until(table, |_| site.rows() == site.with_session());
        site.controller().wait_until("control plane", |_| site.strict.rows("control_plane") == 2);
    }
    site.controller().wait_until("told", |controller| {
        controller.log().contains("target chip: somebody else has changed its rows; ")
    });
    assert_eq!(
        site.strict.values("jobs")[0]["cookie"],
        session.into(),
        "with all workers in its sums it goes on"
    );
    let (_, metrics) = site.controller().get("/metrics");
    assert!(metrics.contains("thc_target_repairs_total{target=\"chip\"}"), "{metrics}");
    assert!(metrics.contains("thc_target_room{target=\"chip\",what=\"data slots\"} 1024"), "{metrics}");
}
