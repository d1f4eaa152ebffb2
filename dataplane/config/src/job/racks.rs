//! The key `racks`: a job of racks below a root (P34 to P38).

use thc_protocol::aggregator::{Endpoint, Level, Racks};
use thc_protocol::session::Root;
use thc_protocol::wire::{FEATURE_ROOT, Rack, Welcome, rack_layout};
use thc_protocol::{MAX_WORKERS, Rank, WorkerId};

use crate::job::error::{ConfigError, Section};
use crate::job::options::JobOptions;
use crate::job::place::ServerPlace;
use crate::job::rack_size::RackSize;

/// The racks of a job.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    sizes: Vec<(u8, u8)>,
    /// As aggregators know them.
    pub racks: Racks,
}

impl JobOptions {
    /// The job's racks, if it has any.
    pub(crate) fn layout(&self, job: u16, place: &ServerPlace) -> Result<Option<Layout>, ConfigError> {
        let section = Section::Job(job);
        let list = |sizes: &[RackSize]| format!("a list of {}", sizes.len());
        let Some(racks) = &self.racks else {
            return match place.rack {
                None => Ok(None),
                Some(_) => {
                    let mend = "a rack's jobs name all racks of the root, such as racks = [8, 8]";
                    Err(section.missing("racks", mend))
                }
            };
        };
        let most = MAX_WORKERS as u64;
        if racks.is_empty() || racks.len() > MAX_WORKERS {
            return Err(section.wrong("racks", list(racks), "a root has 1 to 64 racks"));
        }
        for (rack, &RackSize { workers, quorum }) in racks.iter().enumerate() {
            if workers == 0 || workers > most {
                let found = format!("{workers} workers in rack {rack}");
                return Err(section.wrong("racks", found, "an aggregator has 1 to 64 members"));
            }
            if quorum == 0 || quorum > workers {
                let mend = format!("the quorum of {workers} workers is 1 to {workers}");
                return Err(section.wrong("racks", format!("{quorum}/{workers} in rack {rack}"), mend));
            }
        }
        let sizes: Vec<(u8, u8)> = racks.iter().map(|size| (size.workers as u8, size.quorum as u8)).collect();
        let total = sizes.iter().map(|&(workers, _)| u16::from(workers)).sum::<u16>();
        if let Some((rack, _)) = place.rack
            && usize::from(rack) >= sizes.len()
        {
            let mend = format!("rack is {rack}, and the last of {} is {}", sizes.len(), sizes.len() - 1);
            return Err(section.wrong("racks", list(racks), mend));
        }
        if let Some(workers) = self.workers.filter(|workers| *workers != u64::from(total)) {
            let mend = format!("racks have {total} workers together, leave workers out");
            return Err(section.wrong("workers", workers, mend));
        }
        if let Some(quorum) = self.quorum {
            let mend = "racks have a quorum each: write 7/8 in racks for 7 of 8";
            return Err(section.wrong("quorum", quorum, mend));
        }
        if place.is_share() {
            let mend = "racks have no shares, leave out racks or shares";
            return Err(section.wrong("racks", list(racks), mend));
        }
        let largest = sizes.iter().map(|&(workers, _)| workers).max().unwrap_or(0);
        let racks = Racks { count: sizes.len() as u8, largest, total };
        Ok(Some(Layout { sizes, racks }))
    }
}

impl Layout {
    /// Members of this rack, or of the root, and how many of them complete a slot.
    pub fn members(&self, rack: Option<u8>) -> (u8, u8) {
        match rack {
            None => (self.racks.count, self.racks.count),
            Some(rack) => self.sizes[usize::from(rack)],
        }
    }

    /// Returns `true` if a rack may go on without some of its workers.
    pub fn by_quorum(&self) -> bool {
        self.sizes.iter().any(|(workers, quorum)| quorum < workers)
    }

    /// This server's level in the job.
    pub fn level(&self, place: &ServerPlace) -> Level {
        match place.rack {
            None => Level::Root(self.racks),
            // The root says how many ports it has.
            Some((rack, at)) => {
                Level::Rack { racks: self.racks, rack: WorkerId(rack), root: Endpoint::udp(at), ports: 1 }
            }
        }
    }

    /// The WELCOME of this rack's members, or of the root's.
    fn welcome_of_members(&self, rack: Option<u8>, welcome: &Welcome) -> Welcome {
        let (members, quorum) = self.members(rack);
        let before = &self.sizes[..rack.map_or(0, usize::from)];
        let first: u16 = before.iter().map(|&(workers, _)| u16::from(workers)).sum();
        let features = if rack.is_none() { FEATURE_ROOT } else { 0 };
        let rack = Rack {
            racks: self.racks.count,
            rack: rack.map_or(WorkerId::NONE, WorkerId),
            workers: self.racks.total,
            quorum: self.sizes.iter().map(|&(_, quorum)| u16::from(quorum)).sum(),
            first: Rank(first),
            layout: rack_layout(&self.sizes),
        };
        Welcome { quorum, workers: members, features, rack: Some(rack), ..*welcome }
    }

    /// The WELCOME of members, and the one that the root must send if this is a rack.
    pub fn welcome(&self, place: &ServerPlace, welcome: &Welcome) -> (Welcome, Option<Root>) {
        let root = place.rack.map(|(rack, at)| Root {
            at,
            rack: WorkerId(rack),
            welcome: self.welcome_of_members(None, welcome),
        });
        (self.welcome_of_members(place.rack_number(), welcome), root)
    }
}
