//! Where packets of a slot go when one of several servers is gone (P21).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::SlotId;
use thc_protocol::wire::{Shares, Table, Tables, Welcome};
use thc_protocol::worker::{SharePorts, Takeover};

const PORTS: u8 = 2;
const LONG: Duration = Duration::from_secs(60);

fn base(share: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, share), 9000))
}

/// Three shares of two ports each.
fn ports() -> SharePorts {
    let all = [0, 1, 2].map(base);
    let shares = Shares::new(&all, PORTS).unwrap();
    SharePorts::new(
        base(0),
        &Welcome { shares, shards: PORTS, ..Welcome::new(2, Tables::one(Table::default())) },
    )
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The shares that have the slots of each.
fn servers(ports: &SharePorts) -> [usize; 3] {
    [0, 2, 4].map(|shard| ports.server(shard).unwrap())
}

#[test]
fn a_share_that_is_silent_for_a_second_loses_its_slots_to_the_next_and_that_one_too() {
    let mut ports = ports();
    ports.note_heard(ms(500), 1);
    assert_eq!(ports.take_over(ms(1400), 3, LONG), None);
    let takeover = Takeover { home: 1, home_at: base(1), by: 2, by_at: base(2) };
    assert_eq!(ports.take_over(ms(1500), 3, LONG), Some(takeover));
    assert_eq!((servers(&ports), ports.changes()), ([0, 2, 2], 1));
    // Its second port's packets go to the second port of the other.
    let mut second = base(2);
    second.set_port(second.port() + 1);
    assert_eq!(ports.address(3), second);
    // The second of silence begins anew, whatever was heard of the next share before.
    assert_eq!(ports.take_over(ms(2499), 2, LONG), None);
    assert_eq!(ports.take_over(ms(2500), 2, LONG).map(|takeover| takeover.by), Some(0));
}

#[test]
fn whoever_has_not_waited_a_second_takes_nothing_over() {
    let mut ports = ports();
    assert_eq!(ports.take_over(ms(5000), 0, ms(999)), None);
    assert!(ports.take_over(ms(5000), 0, ms(1000)).is_some());
}

#[test]
fn one_server_has_nobody_to_take_over_from_it() {
    let mut ports = SharePorts::new(
        base(0),
        &Welcome { shards: PORTS, ..Welcome::new(2, Tables::one(Table::default())) },
    );
    assert_eq!((ports.take_over(LONG, 0, LONG), ports.server(0)), (None, None));
}

#[test]
fn a_nudge_of_another_share_shows_where_others_wait() {
    let mut ports = ports();
    // Slot 0 is at home at port 0 of share 0.
    let slot = SlotId(0);
    assert_eq!(ports.follow(ms(10), slot, 0), None);
    assert_eq!(ports.follow(ms(10), slot, 2).map(|takeover| (takeover.home, takeover.by)), Some((0, 2)));
    assert!(ports.is_served_by(1, 2) && !ports.is_served_by(1, 0));
}

#[test]
fn a_share_that_has_lost_its_slots_is_asked_after_two_seconds_and_has_them_again_when_it_answers() {
    let mut ports = ports();
    ports.follow(ms(100), SlotId(0), 1);
    assert_eq!(ports.due_for_asking(ms(2099)), None);
    assert_eq!((ports.due_for_asking(ms(2100)), ports.due_for_asking(ms(2100))), (Some(0), None));
    let takeover = Takeover { home: 0, home_at: base(0), by: 0, by_at: base(0) };
    assert_eq!(ports.note_welcome(ms(2200), 0), Some(takeover));
    assert_eq!((servers(&ports), ports.note_welcome(ms(2200), 0)), ([0, 1, 2], None));
}
