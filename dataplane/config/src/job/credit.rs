//! The credit of a member: what it may have outstanding, so that packets overflow no port (P41).

use thc_protocol::aggregator::Shard;

/// The credit of a worker even with the smallest receive buffer, and with the largest.
const LEAST_CREDIT: u32 = 4;
const MOST_CREDIT: u32 = 1 << 16;
/// The default number of members of all jobs for which a server plans, if a controller creates its jobs.
pub const DEFAULT_MEMBERS: u32 = 64;

/// The packets that a member with this credit may have outstanding at one of `ports` ports: data packets of consecutive
/// slots, and a quarter as many norms.
pub fn fills(credit: u32, ports: usize) -> usize {
    let (block, credit) = (usize::from(Shard::BLOCK), credit as usize);
    // A port has every `ports`-th block of slots.
    let at_a_port = |slots: usize| slots / (block * ports) * block + (slots % (block * ports)).min(block);
    at_a_port(credit) + at_a_port((credit / 4).max(1))
}

/// The credit with which a member fills no more than `each` of any port, but at least [`LEAST_CREDIT`].
pub fn largest(each: usize, ports: usize) -> u32 {
    let block = usize::from(Shard::BLOCK);
    let fits = |credit: &usize| fills(*credit as u32, ports) <= each;
    let whole = (1..=each / block).rev().map(|blocks| blocks * block * ports).find(fits);
    let credit = whole.filter(|_| ports > 1).unwrap_or(each / 5 * 4);
    (credit.min(MOST_CREDIT as usize) as u32).max(LEAST_CREDIT)
}

/// The room of an aggregator's ports, and the members of all jobs for which it is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Data packets that each of its ports holds.
    pub packets: u32,
    /// Members of all jobs, later ones included. With small buffers fewer are planned for.
    pub members: u32,
}

/// The part of the room that a job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its senders: its workers, and for a rack the root.
    pub senders: u32,
    /// Packets of each port that one of these may fill.
    pub each: usize,
}

impl Room {
    /// The number of members for which it is planned: with small buffers, as many as can have four times the
    /// least credit.
    fn planned_members(self) -> u32 {
        self.members.min(self.packets / (4 * fills(LEAST_CREDIT, 1) as u32)).max(1)
    }

    /// The credit of a new job with `senders` senders, each of which can use `useful` of it, beside the jobs `there`.
    ///
    /// The least credit is reserved for each planned member that is not there yet. Beyond that a job gets
    /// what it can use, but no more than half of what is free, or its even part. So all credits together fit
    /// the room, whatever jobs come and go, while there are no more members than planned; later ones still
    /// get the least credit.
    pub fn credit(self, there: impl Iterator<Item = Taken>, senders: u32, useful: u32, ports: usize) -> u32 {
        let (mut members, mut free) = (senders, self.packets as usize);
        for Taken { senders, each } in there {
            members += senders;
            free = free.saturating_sub(senders as usize * each);
        }
        let planned = self.planned_members();
        let kept = planned.saturating_sub(members) as usize * fills(LEAST_CREDIT, 1);
        let even = self.packets as usize * senders as usize / planned.max(members) as usize;
        let limit = free.saturating_sub(kept).min(even.max(free / 2));
        let useful = useful.max(LEAST_CREDIT);
        largest(limit / senders.max(1) as usize, ports).min(useful)
    }
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.packets, self.members)
    }
}

impl std::str::FromStr for Room {
    type Err = ();

    fn from_str(text: &str) -> Result<Room, ()> {
        let (packets, members) = text.split_once(' ').ok_or(())?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        Ok(Room { packets: number(packets)?, members: number(members)? })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// P41, for any sequence of jobs that are created and removed: Σ over members of all jobs of (credit + credit/4) fits each port.
    #[test]
    fn jobs_that_come_and_go_never_have_more_than_the_room() {
        let mut state = 7u64;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % below
        };
        let mut full = 0;
        for _ in 0..300 {
            let room = Room { packets: 40 + draw(20_000), members: 1 + draw(300) };
            let ports = [1, 2, 4][draw(3) as usize];
            let mut jobs: Vec<(u32, u32)> = Vec::new();
            for _ in 0..200 {
                if draw(3) == 0 && !jobs.is_empty() {
                    jobs.swap_remove(draw(jobs.len() as u32) as usize);
                    continue;
                }
                let senders = 1 + draw(64);
                let members: u32 = jobs.iter().map(|job| job.0).sum();
                if members + senders > room.planned_members() {
                    full += 1;
                    continue;
                }
                let there = jobs.iter().map(|&(senders, c)| Taken { senders, each: fills(c, ports) });
                let credit = room.credit(there, senders, 8 << draw(8), ports);
                assert!(credit >= LEAST_CREDIT);
                jobs.push((senders, credit));
                // The most slots that one port has of a window of `slots` slots in a row, wherever the window begins.
                let here = |seq: usize| (seq / 64).is_multiple_of(ports);
                let most = |slots: u32| {
                    let firsts = (0..64 * ports).step_by(16);
                    firsts
                        .map(|first| (first..first + slots as usize).filter(|&seq| here(seq)).count())
                        .max()
                        .unwrap()
                };
                let sum: usize =
                    jobs.iter().map(|&(n, c)| n as usize * (most(c) + most((c / 4).max(1)))).sum();
                assert!(sum <= room.packets as usize, "{room:?}, {ports} ports, {jobs:?}: {sum}");
            }
        }
        assert!(full > 1000);
    }

    #[test]
    fn few_have_what_they_can_use_and_more_than_planned_for_the_least_at_least() {
        let room = Room { packets: 5461, members: 64 };
        assert_eq!(room.credit([].into_iter(), 2, 128, 1), 128);
        assert_eq!(room.credit([].into_iter(), 64, 512, 1), 68);
        let half = Taken { senders: 32, each: 85 };
        assert_eq!(room.credit([half].into_iter(), 32, 512, 1), 68);
        assert_eq!(room.credit([half, half].into_iter(), 32, 512, 1), LEAST_CREDIT);
        // The kernel's default.
        let small = Room { packets: 138, members: 64 };
        assert_eq!((small.planned_members(), small.credit([].into_iter(), 2, 128, 1)), (6, 24));
        assert_eq!(small.credit([].into_iter(), 64, 128, 1), LEAST_CREDIT);
        assert_eq!("138 64".parse(), Ok(small));
        assert_eq!(small.to_string().parse(), Ok(small));
    }
}
