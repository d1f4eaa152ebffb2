//! Carries out what an agent's registry decides about sessions.

use super::{Agent, Packets};
use crate::error::ControllerError;
use crate::live::Heard;
use crate::store::{Job, Member};
use crate::switch::Target;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;
use thc_config::values::plural;
use thc_protocol::aggregator::{Endpoint, JobConfig, Level};
use thc_protocol::session::Action;
use thc_protocol::wire::Header;
use thc_protocol::{JobId, WorkerId};
use thc_transport::frame::Datagram;
use thc_transport::frame::Mac;

/// The number of workers' and roots' Ethernet addresses that are kept: far more than all jobs have.
const MAX_ADDRESSES: usize = 1 << 14;

impl Agent {
    /// Takes a frame of the control plane, which came by `port` if the program says so.
    pub(super) async fn packet(
        &mut self,
        target: &mut Target,
        frame: &[u8],
        port: Option<u16>,
    ) -> Result<(), ControllerError> {
        let own = (self.config.mac, self.config.at);
        let Some(datagram) = Datagram::parse(frame).ok().filter(|datagram| datagram.to == own) else {
            return Ok(());
        };
        let (mac, from) = datagram.from;
        // A host can claim an address, but not a port.
        if self.port(mac).is_none_or(|known| known != 0 && port.is_some_and(|port| port != known)) {
            let by = port.map_or_else(String::new, |port| format!(" by port {port}"));
            tracing::warn!(
                "{from} ({}) has sent a request{by} and is no station there: add or correct its [[target.station]]",
                mac.map(|byte| format!("{byte:02x}")).join(":")
            );
            return Ok(());
        }
        let Ok((header, _)) = Header::parse(datagram.payload) else { return Ok(()) };
        if self.refused.jobs.get(&header.job.0).is_some_and(|refused| Instant::now() < refused.until) {
            return Ok(());
        }
        let heard = &self.readings.heard;
        let alive = |job, worker: WorkerId| heard.get(&(job, worker.0)).map(|heard| heard.since.elapsed());
        let now = self.started.elapsed();
        let mut actions =
            self.registry.handle(now, from, datagram.payload, alive, thc_config::job::cookie::random);
        if self.registry.knows(from) && self.has_cookie(&header) {
            self.keep_address(from, mac);
        }
        actions.extend(self.poll_sessions());
        self.answer(target, actions, Some((from, mac))).await?;
        self.show_joined();
        Ok(())
    }

    /// Returns whether a packet has its job's cookie, or its session's.
    fn has_cookie(&self, header: &Header) -> bool {
        let Some(known) = self.known.get(&header.job) else { return false };
        let of_session = self.registry.session(header.job).map(|(cookie, _)| cookie);
        let store = self.shared.store();
        of_session == Some(header.cookie)
            || store.jobs.get(&known.name).is_some_and(|job| job.spec.config().cookie == header.cookie)
    }

    /// Notes the address of a worker that has shown a cookie. A root's address is in its job.
    fn keep_address(&mut self, at: SocketAddr, mac: Mac) {
        let root_of = |job: &Job| job.spec.rack.as_ref().map(|rack| rack.root);
        let roots: Vec<SocketAddr> = self.shared.store().jobs.values().filter_map(root_of).collect();
        if roots.contains(&at) {
            return;
        }
        if self.macs.len() >= MAX_ADDRESSES && !self.macs.contains_key(&at) {
            let registry = &self.registry;
            self.macs.retain(|at, _| registry.knows(*at) || roots.contains(at));
        }
        self.macs.insert(at, mac);
    }

    /// Returns the actions that are due. Silence of members is known only as of the last count of packets, which may
    /// be some time ago.
    pub(super) fn poll_sessions(&mut self) -> Vec<Action> {
        let (heard, listened) = (&self.readings.heard, self.readings.listened);
        let alive = |job, worker: WorkerId| {
            let Heard { at, .. } = heard.get(&(job, worker.0))?;
            Some(listened?.saturating_duration_since(*at))
        };
        self.registry.poll(self.started.elapsed(), alive)
    }

    /// Carries out the registry's actions: rows first, since workers send as soon as they are welcomed. `asker` is
    /// the sender to which this is the answer.
    pub(super) async fn answer(
        &mut self,
        target: &mut Target,
        actions: Vec<Action>,
        asker: Option<(SocketAddr, Mac)>,
    ) -> Result<(), ControllerError> {
        let (mut packets, changed) = self.record(actions);
        if changed || self.pending {
            packets = self.establish(target, packets).await?;
        }
        self.send(target, packets, asker).await
    }

    /// Records the registry's actions in the store, all at once. Returns the packets to send afterwards, and whether the
    /// store has changed.
    pub(super) fn record(&mut self, actions: Vec<Action>) -> (Packets, bool) {
        let mut changed = false;
        let mut packets = Vec::new();
        for action in actions {
            match action {
                Action::Send(to, bytes) => packets.push((to, bytes)),
                Action::RootDiffers(job, change) => {
                    let name = self.known.get(&job).map_or("", |known| &known.name);
                    let what = format!(
                        "job {name}: its root has another one: {change}; nobody can join it until that is so"
                    );
                    tracing::warn!("{what}");
                }
                Action::RootRefuses(job, reason) => {
                    let name = self.known.get(&job).map_or("", |known| &known.name);
                    tracing::warn!("job {name}: its root does not let the rack in: {reason}");
                }
                Action::Install(config, members) => {
                    self.install(&config, &members);
                    changed = true;
                }
                Action::Move(job, worker, at) => {
                    self.change_session(job, |members| {
                        if let Some(member) = members.get_mut(&worker.0) {
                            member.at = at.addr;
                        }
                    });
                    changed = true;
                }
                Action::Remove(job) => {
                    self.remove_session(job);
                    changed = true;
                }
            }
        }
        (packets, changed)
    }

    /// Sends packets to their receivers; the asker's address is that from which its packet came.
    pub(super) async fn send(
        &self,
        target: &Target,
        packets: Packets,
        asker: Option<(SocketAddr, Mac)>,
    ) -> Result<(), ControllerError> {
        let own = (self.config.mac, self.config.at);
        for (to, bytes) in packets {
            let asked = asker.filter(|(from, _)| *from == to).map(|(_, mac)| mac);
            if let Some(mac) = self.macs.get(&to).copied().or(asked) {
                target.send(Datagram { from: own, to: (mac, to), ecn: 0, payload: &bytes }.frame()).await?;
            }
        }
        Ok(())
    }

    fn remove_session(&mut self, job: JobId) {
        let Some(known) = self.known.get(&job) else { return };
        tracing::info!("job {}: session over", known.name);
        let all_left = self.registry.status(job).is_none_or(|(joined, _)| joined == 0);
        let mut store = self.shared.store();
        let Some(record) = store.jobs.get_mut(&known.name) else { return };
        if let Some(place) = record.places.get_mut(&self.config.name) {
            place.session = None;
        }
        if all_left && !record.spec.follows_at(&self.config.name) {
            // Their numbers are free for the next.
            record.given.clear();
        }
    }

    /// The target has refused rows of a job: its session is over, and its members are informed.
    pub(super) fn turn_away(&mut self, job: JobId) -> Packets {
        let Some(known) = self.known.remove(&job) else { return Vec::new() };
        if let Some(place) = self.shared.store().place_mut(&known.name, &self.config.name) {
            place.session = None;
        }
        self.readings.heard.retain(|(of, _), _| *of != job);
        let ended = self.registry.remove(job).into_iter();
        ended
            .filter_map(|action| if let Action::Send(to, bytes) = action { Some((to, bytes)) } else { None })
            .collect()
    }

    fn install(&mut self, config: &JobConfig, members: &[(WorkerId, Endpoint)]) {
        let Some(known) = self.known.get(&config.job) else { return };
        tracing::info!("job {}: session of {}", known.name, plural(members.len() as u64, "worker"));
        self.readings.heard.retain(|(job, _), _| *job != config.job);
        let seats = self.registry.session(config.job).map(|(_, members)| members).unwrap_or_default();
        let members = members.iter().filter_map(|(worker, at)| {
            let mac = *self.macs.get(&at.addr)?;
            let nonce = seats.iter().find(|seat| seat.worker == *worker)?.nonce;
            Some((worker.0, Member { at: at.addr, mac, port: self.port(mac)?, nonce }))
        });
        let members = members.collect();
        let ports = if let Level::Rack { ports, .. } = config.level { ports } else { 0 };
        let mut store = self.shared.store();
        store.begin(&known.name, &self.config.name, config.cookie.0, members, ports);
        let job = store.jobs.get(&known.name).cloned();
        drop(store);
        job.iter().for_each(|job| self.try_again(job));
    }

    fn change_session(&self, job: JobId, change: impl FnOnce(&mut BTreeMap<u8, Member>)) {
        let Some(known) = self.known.get(&job) else { return };
        if let Some(place) = self.shared.store().place_mut(&known.name, &self.config.name)
            && let Some(session) = &mut place.session
        {
            change(&mut session.members);
        }
    }

    /// The port that a station is behind; 0 where ports mean nothing.
    fn port(&self, mac: Mac) -> Option<u16> {
        let stations = &self.config.ports.stations;
        if stations.is_empty() {
            return Some(0);
        }
        stations.iter().find(|(station, _)| *station == mac).map(|&(_, port)| port)
    }
}
