//! Workers that wait for nothing, and a server that needs them because it has forgotten them (P24).

use crate::world::{JOB, World, gradients, quiet, static_job};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::wire::Kind;
use thc_protocol::{Lane, Policy};
use thc_transport::PacketIo;
use thc_worker::{Borrowed, Call};

/// One worker has begun a call when the server is started again. The other sends nothing of it: it has not come to that call, or its
/// data are being computed elsewhere. `disturb` is called every 500 ms. How long it takes until the session runs again.
fn resumption(begun: bool, mut disturb: impl FnMut(&mut World)) -> Duration {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let session = world.ps.registry.session(JOB).unwrap().0;
    let mut data = gradients(1, 5000, 1).swap_remove(0);
    let number = world.engines[0].submit(5000, Call::default()).unwrap();
    if begun {
        world.engines[1].submit(5000, Call::default()).unwrap();
    }
    let mut turns = |world: &mut World, until: Duration, done: &dyn Fn(&World) -> bool| {
        while world.net.now() < until && !done(world) {
            world.turn(|i, engine| match i {
                0 => engine.step(&mut Borrowed::new(number, &mut data)),
                _ => engine.step(&mut Borrowed::empty()),
            });
        }
    };
    let began = world.net.now();
    turns(&mut world, began + Duration::from_millis(500), &|_| false);
    world.ps.restart();
    let restarted = world.net.now();
    let runs = |world: &World| world.ps.registry.session(JOB).is_some_and(|(now, _)| now == session);
    while !runs(&world) && world.net.now() < restarted + Duration::from_secs(15) {
        disturb(&mut world);
        let until = world.net.now() + Duration::from_millis(500);
        turns(&mut world, until, &runs);
    }
    assert!(world.engines.iter().all(|engine| engine.failure().is_none()));
    world.net.now() - restarted
}

#[test]
fn who_waits_for_nothing_claims_its_session_after_two_seconds_of_silence() {
    for begun in [false, true] {
        let took = resumption(begun, |_| {});
        assert!(took < Duration::from_secs(4), "begun: {begun}, {took:?}");
    }
}

#[test]
fn what_is_none_of_the_sessions_is_no_sign_of_life() {
    // Strays from elsewhere, and what is left of another session from the server's own address.
    let mut stranger = None;
    let mut stray = |world: &mut World| {
        let elsewhere = SocketAddr::from((Ipv4Addr::new(10, 9, 9, 9), 9000));
        let io = stranger.get_or_insert_with(|| world.net.endpoint(elsewhere));
        let to = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), 5000));
        io.send_run(to, &[2; 40], 40).unwrap();
        let mut old = [0; 52];
        (old[0], old[1], old[3], old[8]) = (2, Kind::Nudge as u8, 2, 0x77);
        old[4..6].copy_from_slice(&JOB.0.to_be_bytes());
        world.ps.io.send_run(to, &old[..32], 32).unwrap();
    };
    let took = resumption(false, &mut stray);
    assert!(took < Duration::from_secs(4), "{took:?}");
}
