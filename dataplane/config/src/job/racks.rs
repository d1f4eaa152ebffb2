//! The key `racks`: what a job is for a rack below a root, and for the root of racks (P34 to P38).

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
        let wrong = |key, value: String, mend: String| Err(ConfigError::Value { section, key, value, mend });
        let Some(sizes) = &self.racks else {
            return match place.rack {
                None => Ok(None),
                Some(_) => {
                    let mend = "a rack's jobs name all racks of the root, such as racks = [8, 8]";
                    Err(ConfigError::Missing { section, key: "racks", mend })
                }
            };
        };
        let most = MAX_WORKERS as u64;
        if sizes.is_empty() || sizes.len() > MAX_WORKERS {
            return wrong(
                "racks",
                format!("a list of {}", sizes.len()),
                "a root has 1 to 64 racks".to_owned(),
            );
        }
        for (rack, &RackSize { workers, quorum }) in sizes.iter().enumerate() {
            if workers == 0 || workers > most {
                let mend = "an aggregator has 1 to 64 members".to_owned();
                return wrong("racks", format!("{workers} workers in rack {rack}"), mend);
            }
            if quorum == 0 || quorum > workers {
                let mend = format!("the quorum of {workers} workers is 1 to {workers}");
                return wrong("racks", format!("{quorum}/{workers} in rack {rack}"), mend);
            }
        }
        let sizes: Vec<(u8, u8)> = sizes.iter().map(|size| (size.workers as u8, size.quorum as u8)).collect();
        let total = sizes.iter().map(|&(workers, _)| u16::from(workers)).sum::<u16>();
        if let Some((rack, _)) = place.rack
            && usize::from(rack) >= sizes.len()
        {
            let mend = format!("rack is {rack}, and the last of {} is {}", sizes.len(), sizes.len() - 1);
            return wrong("racks", format!("a list of {}", sizes.len()), mend);
        }
        if self.workers.is_some_and(|workers| workers != u64::from(total)) {
            let mend = format!("racks have {total} workers together, leave workers out");
            return wrong("workers", self.workers.unwrap_or(0).to_string(), mend);
        }
        if let Some(quorum) = self.quorum {
            let mend = "racks have a quorum each: write 7/8 in racks for 7 of 8".to_owned();
            return wrong("quorum", quorum.to_string(), mend);
        }
        if place.is_share() {
            let mend = "racks have no shares, leave out racks or shares".to_owned();
            return wrong("racks", format!("a list of {}", sizes.len()), mend);
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

    /// Whether workers may go on without somebody of theirs.
    pub fn by_quorum(&self) -> bool {
        self.sizes.iter().any(|(workers, quorum)| quorum < workers)
    }

    /// What this server is in the job.
    pub fn level(&self, place: &ServerPlace) -> Level {
        match place.rack {
            None => Level::Root(self.racks),
            // How many ports the root has, it says itself.
            Some((rack, at)) => {
                Level::Rack { racks: self.racks, rack: WorkerId(rack), root: Endpoint::udp(at), ports: 1 }
            }
        }
    }

    /// What this rack, or the root, tells its members of a job of these racks.
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

    /// What members are told, and what the root must say if this is a rack.
    pub fn welcome(&self, place: &ServerPlace, welcome: &Welcome) -> (Welcome, Option<Root>) {
        let root = place.rack.map(|(rack, at)| Root {
            at,
            rack: WorkerId(rack),
            welcome: self.welcome_of_members(None, welcome),
        });
        (self.welcome_of_members(place.rack_number(), welcome), root)
    }
}
