//! Joining a session (P22 to P24).

use crate::driver::IDLE;
use crate::engine::{NAP, REPORT};
use crate::random::random;
use crate::{GroupConfig, Seat, Silence, WorkerError};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thc_codec::definitions;
use thc_protocol::session::{JoinError, JoinEvent, Joiner, Joiners};
use thc_protocol::wire::Welcome;
use thc_protocol::worker::Workers;
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_transport::PacketIo;

/// The error of a failed join. If no program listens at the server's port any more, that explains everything else.
fn join_failure(io: &impl PacketIo, ps: SocketAddr, error: JoinError) -> WorkerError {
    let (at, refused, waited) = match (io.refused(), error) {
        (Some((at, since)), _) => (at, true, io.now().saturating_sub(since)),
        (None, JoinError::Silent { waited }) => (ps, false, waited),
        (None, JoinError::ShareSilent { at, waited, .. }) => (at, false, waited),
        (None, error) => return error.into(),
    };
    Silence { at, refused, waited, joining: true }.into()
}

/// The error if the job has another number of workers than the program runs. Before WELCOME, a rack gives the number of its
/// own members, which is at most that of all.
fn wrong_number(config: &GroupConfig, event: &JoinEvent) -> Option<JoinError> {
    let expected = config.workers?;
    let workers = match event {
        JoinEvent::Pending(_, members) => Some(u16::from(*members)).filter(|members| *members > expected)?,
        JoinEvent::Welcome(welcome) => welcome.rack.map_or(welcome.workers.into(), |rack| rack.workers),
        _ => return None,
    };
    (workers != expected).then_some(JoinError::Workers { job: JobId(config.seat.job), workers, expected })
}

/// In a turn of joining that takes longer, this process was suspended.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// Joins through `io` (P22, P23). If the server has shares, it joins all of them (P24). A worker that cannot join, or that
/// `stop` ends, gives its place back.
pub(crate) fn rendezvous(
    io: &mut impl PacketIo,
    config: &GroupConfig,
    stop: &AtomicBool,
) -> Result<(Joiners, Welcome), WorkerError> {
    let mut joiners = joiners(config, io.now());
    match join(io, config, stop, &mut joiners) {
        Ok(welcome) => Ok((joiners, welcome)),
        Err(error) => {
            if !matches!(error, WorkerError::Silent(_) | WorkerError::Join(JoinError::Refused { .. })) {
                leave(io, config.seat.ps, &mut joiners)?;
            }
            Err(error)
        }
    }
}

/// A worker that has not asked for its place yet.
fn joiners(config: &GroupConfig, now: Duration) -> Joiners {
    let Seat { job, worker, cookie, .. } = config.seat;
    let (job, worker, cookie) = (JobId(job), WorkerId(worker), Cookie(cookie));
    Joiners::new(Joiner::new(job, worker, cookie, random(), definitions::digest(), now))
}

/// Sends what is due, waits a moment, and passes what comes to `joiners`. Returns the last event.
fn exchange(
    io: &mut impl PacketIo,
    ps: SocketAddr,
    joiners: &mut Joiners,
) -> Result<Option<JoinEvent>, WorkerError> {
    let now = io.now();
    let at = |joiners: &Joiners, share| match share {
        0 => ps,
        share => joiners.shares()[share],
    };
    let mut buffer = [0; 64];
    while let Some((share, packet)) = joiners.poll(now, &mut buffer) {
        io.send_run(at(joiners, share), packet, packet.len())?;
    }
    let due = joiners.deadline().map_or(IDLE, |due| due.saturating_sub(now));
    io.wait(due.clamp(Duration::from_millis(1), NAP * 10))?;
    let mut event = None;
    io.recv_burst(&mut |origin, packet| {
        if let Some(share) = (0..joiners.count()).find(|&share| at(joiners, share) == origin.from)
            && let Some(new) = joiners.handle(now, share, packet)
            && !matches!(new, JoinEvent::Here(_))
        {
            // `joiners` keeps which members have left again: this may come in one burst with WELCOME.
            event = Some(new);
        }
    })?;
    Ok(event)
}

/// Leaves before a session has begun (P25 LEAVE).
fn leave(io: &mut impl PacketIo, ps: SocketAddr, joiners: &mut Joiners) -> Result<(), WorkerError> {
    joiners.quit(io.now());
    while !joiners.has_left() {
        exchange(io, ps, joiners)?;
    }
    Ok(())
}

fn join(
    io: &mut impl PacketIo,
    config: &GroupConfig,
    stop: &AtomicBool,
    joiners: &mut Joiners,
) -> Result<Welcome, WorkerError> {
    let started = io.now();
    let Seat { ps, job, .. } = config.seat;
    let mut shown = u64::MAX;
    let mut reported = started;
    // Time in which this process was suspended does not count.
    let (mut last, mut suspended) = (started, Duration::ZERO);
    loop {
        let now = io.now();
        suspended += now.saturating_sub(last).saturating_sub(LONGEST_TURN);
        last = now;
        let running = now.saturating_sub(suspended);
        if stop.load(Ordering::SeqCst) {
            return Err(WorkerError::GivenUp);
        }
        if let Some(error) = joiners.timeout_error(running, config.timeouts.join) {
            return Err(join_failure(io, ps, error));
        }
        if now >= reported + REPORT
            && let Some(error) = joiners.timeout_error(running, REPORT)
        {
            reported = now;
            match join_failure(io, ps, error) {
                WorkerError::Silent(silence) => tracing::warn!("{}", silence.finding()),
                WorkerError::Join(JoinError::Missing { missing, waited, .. }) => {
                    tracing::warn!("waiting for {} for {:.0} s", Workers(missing), waited.as_secs_f64());
                }
                error => tracing::warn!("{error}"),
            }
        }
        let event = exchange(io, ps, joiners)?;
        if let Some(error) = event.as_ref().and_then(|event| wrong_number(config, event)) {
            return Err(error.into());
        }
        match event {
            Some(JoinEvent::Welcome(welcome)) => return Ok(welcome),
            Some(JoinEvent::Failed(error)) => return Err(error.into()),
            Some(JoinEvent::Pending(joined, workers)) if joined != shown => {
                shown = joined;
                let joined = joined.count_ones();
                tracing::info!("waiting: {joined} of {workers} workers of job {job} have joined");
            }
            Some(JoinEvent::PendingRacks(joined, racks)) if joined != shown => {
                shown = joined;
                let complete = joined.count_ones();
                tracing::info!("this rack is complete: {complete} of {racks} racks of job {job} are");
            }
            // A worker has restarted while this one joined share after share.
            Some(JoinEvent::Reforming(_) | JoinEvent::Changed(_)) => *joiners = self::joiners(config, now),
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Timeouts;
    use std::io;
    use std::time::Instant;
    use thc_codec::table::LookupTable;
    use thc_protocol::TableId;
    use thc_protocol::wire::{Form, Header, Join, Kind, MAX_PACKET, Pending, Table, Tables};
    use thc_support::wire_table;
    use thc_transport::{IoStats, Peer, Run};

    /// A server that answers JOIN by WELCOME and, in the same burst, says that worker 0 has left again.
    struct Server {
        started: Instant,
        nonce: Option<u64>,
    }

    impl PacketIo for Server {
        fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
            let Some(nonce) = self.nonce.take() else { return Ok(0) };
            let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
            let table = Table { id: TableId(3), ..wire_table(Form::USUAL, &table) };
            let session = Cookie(9);
            let welcome = Welcome { session, nonce, block: 13, ..Welcome::new(2, Tables::one(table)) };
            let pending = Pending { joined: 0b10 };
            let bodies =
                [(Kind::Welcome, welcome.to_bytes().to_vec()), (Kind::Pending, pending.to_bytes().to_vec())];
            for (kind, body) in bodies {
                let mut packet = [0; MAX_PACKET];
                let contents =
                    Header::new(kind, 2, JobId(1), WorkerId(1), session).emit_packet(&mut packet, &body);
                let segment = contents.len();
                let from = GroupConfig::default().seat.ps;
                f(Run { from, at: None, ecn: 0, contents, segment, memory: None });
            }
            Ok(2)
        }

        fn send_run_with(&mut self, _: Peer, packet: &[u8], _: usize, _: u8) -> io::Result<()> {
            let (_, payload) = Header::parse(packet).unwrap();
            self.nonce = Some(Join::parse(payload).unwrap().nonce);
            Ok(())
        }

        fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
            std::thread::sleep(timeout.min(Duration::from_millis(1)));
            Ok(false)
        }

        fn now(&self) -> Duration {
            self.started.elapsed()
        }

        fn local(&self) -> Peer {
            GroupConfig::default().seat.ps
        }

        fn stats(&self) -> IoStats {
            IoStats::default()
        }
    }

    #[test]
    fn a_worker_that_leaves_at_once_does_not_hide_the_welcome_of_another() {
        let mut server = Server { started: Instant::now(), nonce: None };
        let join_timeout = Duration::from_secs(2);
        let seat = Seat { worker: 1, ..Seat::default() };
        let timeouts = Timeouts { join: join_timeout, ..Timeouts::default() };
        let config = GroupConfig { seat, timeouts, ..GroupConfig::default() };
        let (joiners, welcome) = rendezvous(&mut server, &config, &AtomicBool::new(false)).unwrap();
        assert_eq!((welcome.session, welcome.workers, joiners.members_here()), (Cookie(9), 2, 0b10));
    }
}
