//! How far a worker is behind is told of the session that runs, whatever earlier ones left.

use crate::aggregator;
use crate::controller::Controller;
use thc_support::openmetrics::parse;
use thc_worker::{Call, Group, GroupConfig};

fn join(controller: &Controller, rank: u8) -> Group {
    let mut asked =
        thc_worker::Controller::new(format!("thc://{}/train", controller.listen).parse().unwrap());
    asked.rank = Some(rank);
    Group::join(GroupConfig { controller: Some(asked), ..GroupConfig::default() }).unwrap()
}

/// Both do something at the same time.
fn run_both<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T + Send) -> [T; 2] {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        [one(), other.join().unwrap()]
    })
}

fn reduce(groups: &[Group; 2]) {
    let [one, other] = groups;
    let all = |group: &Group| (0..3).for_each(|_| group.allreduce(&mut vec![1.0; 20_000]).unwrap());
    run_both(|| all(one), || all(other));
}

/// Both workers' lag, and packets in sums of all sessions.
fn read_lag(controller: &Controller) -> Option<([f64; 2], [f64; 2])> {
    let families = parse(&controller.get("/metrics").1);
    let value = |family: &str, worker: &str, event: Option<&str>| {
        let samples = families[family].samples.iter();
        let mut of_worker = samples.filter(|(labels, _)| {
            labels.get("worker").is_some_and(|number| number == worker)
                && event.is_none_or(|event| labels.get("event").is_some_and(|has| has == event))
        });
        of_worker.next().map(|(_, value)| *value)
    };
    let lag = |worker| value("thc_worker_lag_packets", worker, None);
    let sums = |worker| {
        let of = |event| value("thc_packet_events", worker, Some(event));
        Some(of("opened")? + of("added")?)
    };
    Some(([lag("0")?, lag("1")?], [sums("0")?, sums("1")?]))
}

#[test]
fn the_lag_is_that_of_the_session() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    controller.ask_done(&["job", "create", "train", "--workers", "2"]);
    let first = run_both(|| join(&controller, 0), || join(&controller, 1));
    reduce(&first);
    // A call of one of them alone: its packet waits in a slot for the other's.
    let [ahead, behind] = first;
    let waiting = ahead.start(vec![1.0; 20_000], Call::default()).unwrap();
    controller.wait_until("ahead", |controller| {
        read_lag(controller).is_some_and(|(lag, sums)| lag[0] == 0.0 && lag[1] >= 1.0 && sums[0] > sums[1])
    });
    // The other one restarts: the session ends, and a new one begins.
    drop(behind);
    let [again, behind] = run_both(
        || {
            waiting.wait().unwrap_err();
            ahead.rejoin().unwrap();
            ahead
        },
        || join(&controller, 1),
    );
    let second = [again, behind];
    reduce(&second);
    let at = |controller: &Controller, wanted: [f64; 2]| {
        controller
            .wait_until("even", |controller| read_lag(controller).is_some_and(|(lag, _)| lag == wanted));
        read_lag(controller).unwrap().1
    };
    controller.wait_until("the second session", |controller| {
        controller.json(&["job", "show", "train"])["places"][0]["sessions"] == 2
    });
    let sums = at(&controller, [0.0, 0.0]);
    assert!(sums[0] > sums[1], "what the first session left is still counted: {sums:?}");
}
