//! Reads the counters of an agent's target.

use super::Agent;
use crate::error::ControllerError;
use crate::live::{self, Heard};
use crate::store::JobCounted;
use crate::store::Placement;
use crate::switch::Target;
use std::collections::BTreeMap;
use std::time::Instant;
use thc_protocol::JobId;

/// Ticks between two readings of how many packets have come.
const PACKETS: u32 = 2;
/// Ticks between two readings of all counters.
const ALL_COUNTERS: u32 = 4;

impl Agent {
    /// Notes the values of the counters of new jobs (left by earlier jobs) and of new sessions' members (left
    /// by earlier sessions). This happens before any of their rows is written, so none of their own packets
    /// are included.
    pub(super) async fn record_counted(&self, target: &mut Target) -> Result<(), ControllerError> {
        let new: Vec<(String, u64, u8, Placement)> = {
            let store = self.shared.store();
            let place = |(name, job): (&String, &crate::store::Job)| {
                let place = job.places.get(&self.config.name)?;
                let new = |place: &&Placement| {
                    place.earlier.is_none()
                        || place.session.as_ref().is_some_and(|session| session.before.is_none())
                };
                let place = Some(place).filter(new)?;
                Some((name.clone(), job.serial, job.spec.config().workers, place.clone()))
            };
            store.jobs.iter().filter_map(place).collect()
        };
        for (name, serial, workers, place) in new {
            let earlier = match &place.earlier {
                Some(earlier) => earlier.clone(),
                None => live::read_job(target, &place, workers).await?,
            };
            let mut before = BTreeMap::new();
            if let Some(session) = &place.session {
                let members: Vec<u8> = session.members.keys().copied().collect();
                before = live::read_in_sums(target, &place, &members).await?;
                let less =
                    |(&worker, sum): (&u8, &mut u64)| *sum = sum.saturating_sub(earlier.in_sums(worker));
                before.iter_mut().for_each(less);
            }
            let mut store = self.shared.store();
            let job = store.jobs.get_mut(&name).filter(|job| job.serial == serial);
            let Some(now) = job.and_then(|job| job.places.get_mut(&self.config.name)) else { continue };
            now.earlier = Some(earlier);
            let epoch = place.session.as_ref().map(|session| session.epoch);
            if let Some(session) = &mut now.session
                && Some(session.epoch) == epoch
            {
                session.before = Some(before);
            }
        }
        Ok(())
    }

    pub(super) fn show_joined(&self) {
        let joined = self.known.iter().map(|(&number, known)| {
            (known.name.clone(), self.registry.status(number).map_or(0, |(joined, _)| joined))
        });
        let joined = joined.collect();
        if let Some(view) = self.shared.views().get_mut(&self.config.name) {
            view.joined = joined;
        }
    }

    /// Checks which members still send, so that nobody takes the place of a living one, and now and then
    /// reads all counters. Each counter is read in one request, and at most twice a second.
    pub(super) async fn listen(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let jobs = self.jobs_counted();
        self.readings.ticks = self.readings.ticks.wrapping_add(1);
        if self.readings.ticks % PACKETS != 1 {
            return Ok(());
        }
        let places: Vec<(&Placement, u8)> =
            jobs.iter().map(|(.., workers, place)| (place, *workers)).collect();
        let packets = live::read_packets(target, &places).await?;
        let at = Instant::now();
        for ((number, _, _, place), counted) in jobs.iter().zip(&packets) {
            for &worker in place.session.iter().flat_map(|session| session.members.keys()) {
                let Some(&(packets, _)) = counted.get(usize::from(worker)) else { continue };
                let heard =
                    self.readings.heard.entry((*number, worker)).or_insert(Heard { packets, at, since: at });
                if heard.packets != packets {
                    // Packets before a worker was asked whether it runs do not show that it does (P24).
                    *heard = Heard { packets, at, since: self.readings.listened.unwrap_or(at) };
                }
            }
        }
        self.readings.listened = Some(at);
        self.show_joined();
        if self.readings.ticks % ALL_COUNTERS != 1 {
            return Ok(());
        }
        let counted = live::read_jobs(target, &places, packets).await?;
        let named = jobs.iter().zip(counted).map(|((_, name, _, place), now)| {
            (name.clone(), place.earlier.iter().fold(now, JobCounted::difference))
        });
        let counted = named.collect();
        let carrier = live::read_carrier(target).await?;
        if let Some(view) = self.shared.views().get_mut(&self.config.name) {
            view.jobs = counted;
            view.carrier = carrier;
            let names =
                |(number, worker): &(JobId, u8)| Some((self.known.get(number)?.name.clone(), *worker));
            view.heard =
                self.readings.heard.iter().filter_map(|(key, heard)| Some((names(key)?, *heard))).collect();
        }
        Ok(())
    }

    /// The jobs here, with their numbers of workers and places.
    fn jobs_counted(&mut self) -> Vec<(JobId, String, u8, Placement)> {
        let store = self.shared.store();
        let registry = &mut self.registry;
        let jobs = self.known.iter().filter_map(|(&number, known)| {
            let job = store.jobs.get(&known.name)?;
            // Another of its servers may have less room.
            registry.set_credit(number, job.credit());
            let place = job.places.get(&self.config.name)?.clone();
            Some((number, known.name.clone(), known.workers, place))
        });
        jobs.collect()
    }
}
