//! `best-effort`: what is given up is not lost.

use crate::world::{
    LEN, World, exact_mean, gradients, host_of, hostile, nmse, quiet, saved_feedback, static_job,
};
use thc_protocol::wire::Kind;
use thc_protocol::{Lane, Policy};
use thc_worker::Call;

#[test]
fn what_best_effort_gives_up_returns_to_the_error_feedback() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::BestEffort), quiet());
    let data = gradients(2, 10_000, 3);
    let mut out = data.clone();
    // Packets 2 and 5 of the first partition come from nobody, the 1 of the last from worker 0 alone.
    world.ps.admits = Box::new(|from, packet| {
        let slot = u16::from_be_bytes([packet[16], packet[17]]);
        packet[1] != Kind::Data as u8 || !(slot == 2 || slot == 5 || slot == 9 && host_of(from) == 2)
    });
    let options = Call { feedback: Some(1), ..Call::default() };
    for outcome in world.allreduce(&mut out, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    assert_eq!(out[0], out[1]);
    // What has been sent and what is kept make up the whole, for each worker; sums are of what all have sent.
    let kept: Vec<Vec<f32>> = world
        .engines
        .iter()
        .map(|engine| {
            saved_feedback(engine)[0].1[16..]
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect()
        })
        .collect();
    for i in 0..10_000 {
        let sent = (0..2).map(|w| data[w][i] - kept[w][i]).sum::<f32>() / 2.0;
        assert!((sent - out[0][i]).abs() < 1e-4, "coordinate {i}: {sent} was sent, {} came back", out[0][i]);
    }
    assert!(world.engines.iter().all(|engine| engine.stats().lost == 3));
}

#[test]
fn best_effort_goes_on_without_lost_packets() {
    let mut config = hostile(5);
    config.loss = 0.5;
    let mut world = World::new(static_job(4, Lane::Bits8, 4, Policy::BestEffort), config);
    let data = gradients(4, LEN, 3);
    let mean = exact_mean(&data);
    let mut out = data.clone();
    for outcome in world.allreduce(&mut out, &[Call::default(); 4], |_, _| {}) {
        outcome.unwrap();
    }
    for (engine, out) in world.engines.iter().zip(&out) {
        let lost = engine.stats().lost;
        assert!(lost > 0, "the network lost packets");
        let error = nmse(&mean, out);
        assert!(
            error < 0.03 + lost as f64 * 1024.0 / LEN as f64 * 1.5,
            "NMSE {error} with {lost} packets lost"
        );
    }
}
