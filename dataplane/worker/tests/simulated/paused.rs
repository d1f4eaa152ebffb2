//! Workers that are suspended together for longer than their time-out.

use crate::world::{World, gradients, host_of, quiet, static_job};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::wire::Kind;
use thc_protocol::{Lane, Policy};
use thc_worker::Call;

const WORKERS: u8 = 2;
const LEN: usize = 5000;

#[test]
fn workers_that_are_suspended_past_their_time_out_go_on() {
    let job = static_job(WORKERS, Lane::Bits8, WORKERS, Policy::Reliable);
    let mut world = World::new(job, quiet());
    // Data of the last worker do not come until all have been suspended, for longer than any time-out there is.
    let (late, suspended) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(false)));
    let held = Rc::clone(&late);
    world.ps.admits = Box::new(move |from, packet| {
        packet[1] != Kind::Data as u8 || host_of(from) != WORKERS || !held.get()
    });
    let net = world.net.clone();
    let began = net.now();
    let mut data = gradients(usize::from(WORKERS), LEN, 1);
    let outcomes = world.allreduce(&mut data, &[Call::default(); WORKERS as usize], |_, _| {
        let waited = net.now() - began;
        if waited > Duration::from_secs(5) && !suspended.replace(true) {
            net.advance_to(net.now() + Duration::from_secs(600));
        } else if suspended.get() {
            late.set(false);
        }
    });
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    assert!(suspended.get() && data[0] == data[1]);
}
