//! A quorum below n: who is slow is skipped, and comes back (section 6 of the THC paper, P9, P18).

use crate::world::{World, gradients, quiet, saved_feedback, static_job};
use thc_protocol::wire::Mode;
use thc_protocol::{Lane, Policy};
use thc_worker::{Borrowed, Call, Plan};

const LEN: usize = 5000;
const OPTIONS: Call<'static> = Call { plan: Plan::Whole(Mode::Compressed), feedback: Some(1) };

/// One all-reduce on these workers, while the others do what they have to do anyway.
fn reduce(world: &mut World, workers: &[usize], data: &mut [Vec<f32>]) {
    let mut numbers = vec![None; world.engines.len()];
    for &i in workers {
        numbers[i] = Some(world.engines[i].submit(LEN, OPTIONS).unwrap());
    }
    let mut turns = 0;
    while numbers.iter().any(Option::is_some) {
        turns += 1;
        assert!(turns < 1_000_000, "no end");
        world.turn(|i, engine| {
            let mut lent = numbers[i].map_or(Borrowed::empty(), |number| Borrowed::new(number, &mut data[i]));
            let busy = engine.step(&mut lent);
            if let Some(outcome) = numbers[i].and_then(|number| engine.take_outcome(number)) {
                outcome.unwrap();
                numbers[i] = None;
            }
            busy
        });
    }
}

#[test]
fn who_is_far_behind_a_quorum_is_skipped_keeps_what_it_had_and_comes_back() {
    let mut job = static_job(3, Lane::Bits8, 2, Policy::Reliable);
    job.welcome.block = 12;
    let mut world = World::new(job, quiet());
    let steps = 40;
    let all: Vec<Vec<Vec<f32>>> = (0..steps).map(|step| gradients(3, LEN, step)).collect();
    let mut means = Vec::new();
    for data in &all {
        let mut data = data.clone();
        reduce(&mut world, &[0, 1], &mut data);
        assert_eq!(data[0], data[1]);
        means.push(data.swap_remove(0));
    }
    // It does all of that later: the first steps are gone, of the last ones it still gets the means.
    let (mut skipped, mut got) = (Vec::new(), 0);
    for (step, data) in all.iter().enumerate() {
        let mut data = data.clone();
        reduce(&mut world, &[2], &mut data);
        if data[2].iter().all(|x| *x == 0.0) {
            assert_eq!(got, 0, "step {step}");
            skipped.push(step);
        } else {
            assert!(data[2] == means[step], "step {step}");
            got += 1;
        }
    }
    assert!(skipped.len() > 20 && got > 0, "{} skipped, {got} of {steps} came late", skipped.len());
    let stats = world.engines[2].stats();
    assert_eq!(stats.lost_coordinates, (skipped.len() * LEN) as u64);
    assert!(stats.lost >= 5 * skipped.len() as u64 && stats.stragglers > 0);
    assert_eq!(stats.calls, steps);
    // Nothing of what was skipped is forgotten, nor is anything there twice.
    let kept: Vec<f32> = saved_feedback(&world.engines[2])[0].1[16..]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let norm = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let had: Vec<f32> = (0..LEN).map(|i| all.iter().map(|data| data[2][i]).sum()).collect();
    let apart: Vec<f32> = kept.iter().zip(&had).map(|(kept, had)| kept - had).collect();
    assert!(norm(&apart) < 1e-3 * norm(&had), "{} of {}", norm(&apart), norm(&had));
    // From now on it is in time, and whoever the quorum is of, all have the same mean.
    for step in 0..5 {
        let mut data = gradients(3, LEN, 100 + step);
        reduce(&mut world, &[0, 1, 2], &mut data);
        assert!(data[0] == data[1] && data[1] == data[2] && data[0].iter().any(|x| *x != 0.0));
    }
    assert!(world.engines.iter().all(|engine| engine.failure().is_none()));
}
