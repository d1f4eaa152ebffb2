//! Calls that differ (P14) and norms that are not finite (P19), with every subset of the first packets lost: NORMs, their results,
//! MISMATCHes and NUDGEs of several slots in every combination. Nobody hangs, and all end alike.

use crate::client::Manner;
use crate::plan::{CallPlan, JobPlan};
use crate::scenario::{micros, ms};
use crate::scene::{Network, Restarts, Scene};
use std::time::Duration;
use thc_protocol::wire::Norm;
use thc_protocol::worker::{CallError, SessionError, Who};
use thc_protocol::{Lane, WorkerId};

/// Packets of which every subset is lost.
const PACKETS: u32 = 11;

/// A call of so many partitions of one packet each.
fn call(workers: u8, partitions: usize, key: u32) -> CallPlan {
    CallPlan {
        length: 1024 * partitions as u32,
        key,
        packets: vec![1; partitions],
        choices: vec![Some(0); partitions],
        norms: vec![vec![1f32.to_bits(); partitions]; usize::from(workers)],
    }
}

/// A session, and with which call and by whom something is wrong.
struct Case {
    plan: JobPlan,
    odd: u8,
    /// When that worker begins.
    start: Duration,
}

impl Case {
    /// Two calls of so many partitions, over so many norm slots.
    fn new(workers: u8, partitions: usize, norm_slots: u32, odd: u8, start: Duration) -> Case {
        let mut plan = JobPlan::new(7, workers, 4, norm_slots, Lane::Bits8);
        plan.calls = vec![call(workers, partitions, 1), call(workers, partitions, 2)];
        (plan.timeout, plan.max_rto) = (Duration::from_secs(3), ms(100));
        Case { plan, odd, start }
    }

    fn all_cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (workers, partitions, norm_slots, odd, start) in [
            (2, 1, 4, 0, 0),
            (2, 1, 4, 1, 60),
            (2, 2, 8, 0, 0),
            (2, 1, 2, 1, 0),
            (3, 1, 4, 1, 0),
            (3, 1, 8, 2, 60),
        ] {
            cases.push(Case::new(workers, partitions, norm_slots, odd, micros(start)));
        }
        cases
    }

    /// Runs it with each subset of the first packets lost; `others` sees other calls than the rest.
    fn each_loss(&self, others: &[(u16, JobPlan)], check: impl Fn(&Scene)) {
        for lost in 0..1 << PACKETS {
            let network = Network { delay: micros(30), ..Network::default() };
            let mut scene = Scene::new(1, 1, network, Restarts::default());
            scene.lost = lost;
            let mut manners = vec![Manner::prompt(2); usize::from(self.plan.config.workers)];
            manners[usize::from(self.odd)].start = self.start;
            scene.add_job(&self.plan, manners, others);
            scene.run(self.plan.timeout * 3, ms(10));
            let late =
                scene.clients.iter().find(|client| client.ended.is_none_or(|at| at > self.plan.timeout));
            assert!(late.is_none(), "lost {lost:b}: worker {} ended late", late.unwrap().number);
            check(&scene);
        }
    }
}

#[test]
fn calls_that_differ_end_on_all_workers_whatever_is_lost_first() {
    for case in Case::all_cases() {
        for at in 0..2 {
            let mut other = case.plan.clone();
            other.calls[at].key = 9;
            case.each_loss(&[(case.odd.into(), other)], |scene| {
                for client in &scene.clients {
                    let Some(SessionError::Mismatch { who, slot, refused, .. }) = client.worker.failure()
                    else {
                        panic!(
                            "lost {:b}: worker {} ends with {:?}",
                            scene.lost,
                            client.number,
                            client.worker.failure()
                        );
                    };
                    assert!(slot.tag != refused.tag && (slot.key == 9) != (refused.key == 9));
                    assert!(slot.key == 9 || who == Who::Worker(WorkerId(case.odd)));
                    assert!(usize::from(slot.call) == at && usize::from(refused.call) == at);
                }
            });
        }
    }
}

#[test]
fn a_norm_that_is_not_finite_fails_its_call_on_all_workers_whatever_is_lost_first() {
    for mut case in Case::all_cases() {
        for at in 0..2 {
            let usual = case.plan.calls.clone();
            case.plan.calls[at].norms[usize::from(case.odd)][0] = Norm::non_finite(WorkerId(case.odd));
            case.each_loss(&[], |scene| {
                for client in &scene.clients {
                    assert_eq!(client.worker.failure(), None, "lost {:b}", scene.lost);
                    assert_eq!(client.pending(), 0);
                    let error = CallError::NonFinite { worker: WorkerId(case.odd).into() };
                    let failed: Vec<_> =
                        client.record.failed.iter().map(|(call, error)| (*call, *error)).collect();
                    assert_eq!(failed, [(at as u64, error)], "lost {:b}", scene.lost);
                }
            });
            case.plan.calls = usual;
        }
    }
}
