//! The keys `rack`, `root` and `racks`: a server as a rack below a root, or as the root of racks (P34 to P38).

use std::net::{SocketAddr, UdpSocket};

use thc_protocol::aggregator::{Endpoint, Level, Racks};
use thc_protocol::session::Root;
use thc_protocol::wire::{FEATURE_ROOT, Rack, Welcome, rack_layout};
use thc_protocol::{MAX_WORKERS, Rank, WorkerId};
use thc_transport::resolve;

use crate::rack_size::RackSize;
use crate::{ConfigError, JobOptions, Section, ServerOptions};

/// Where a server stands in all its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// Alone, or as the root of jobs that have racks.
    Top,
    /// As a rack of this number, below this root.
    Rack(u8, SocketAddr),
}

/// The racks of a job.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    sizes: Vec<(u8, u8)>,
    /// As aggregators know them.
    pub racks: Racks,
}

impl ServerOptions {
    /// What `rack` and `root` say; `listen` is where this server is.
    pub(crate) fn standing(&self, listen: SocketAddr) -> Result<Standing, ConfigError> {
        let section = Section::Server;
        let (rack, root) = match (self.rack, &self.root) {
            (None, None) => return Ok(Standing::Top),
            (Some(rack), Some(root)) => (rack, root),
            (Some(_), None) => {
                let mend = "say where the root is, such as 10.0.0.1:9000";
                return Err(ConfigError::Missing { section, key: "root", mend });
            }
            (None, Some(_)) => {
                let mend = "say which of the root's racks this server is, from 0 on";
                return Err(ConfigError::Missing { section, key: "rack", mend });
            }
        };
        let wrong = |key, value: String, mend: &str| {
            Err(ConfigError::Value { section, key, value, mend: mend.to_owned() })
        };
        if rack >= MAX_WORKERS as u64 {
            return wrong("rack", rack.to_string(), "a root has at most 64 racks, 0 to 63");
        }
        if self.p4runtime.is_some() {
            return wrong(
                "rack",
                rack.to_string(),
                "a thc-ps under a controller cannot be a rack, leave out rack or p4runtime",
            );
        }
        if self.shares.is_some() {
            return wrong("rack", rack.to_string(), "racks have no shares, leave out rack or shares");
        }
        let Some(at) = resolve(root).ok().filter(|at| at.port() != 0 && !at.ip().is_unspecified()) else {
            return wrong(
                "root",
                format!("{root:?}"),
                "write an address (no link-local one) or a name with a port, such as 10.0.0.1:9000 or [fd00::1]:9000",
            );
        };
        let here = at.ip() == listen.ip() || (listen.ip().is_unspecified() && is_own(at));
        if here && at.port() == listen.port() {
            return wrong(
                "root",
                at.to_string(),
                "that is where this rack listens itself, give the address of another server",
            );
        }
        if self.shards.is_some_and(|shards| shards != 1) {
            let value = self.shards.unwrap_or(1).to_string();
            return wrong("shards", value, "a rack has one port, give 1 or leave it out");
        }
        Ok(Standing::Rack(rack as u8, at))
    }
}

/// Whether an address is this host's.
fn is_own(at: SocketAddr) -> bool {
    UdpSocket::bind((at.ip(), 0)).is_ok()
}

impl JobOptions {
    /// The job's racks, if it has any.
    pub(crate) fn layout(
        &self,
        job: u16,
        standing: Standing,
        shares: bool,
    ) -> Result<Option<Layout>, ConfigError> {
        let section = Section::Job(job);
        let wrong = |key, value: String, mend: String| Err(ConfigError::Value { section, key, value, mend });
        let Some(sizes) = &self.racks else {
            return match standing {
                Standing::Top => Ok(None),
                Standing::Rack(..) => {
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
        if let Standing::Rack(rack, _) = standing
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
        if shares {
            let mend = "racks have no shares, leave out racks or shares".to_owned();
            return wrong("racks", format!("a list of {}", sizes.len()), mend);
        }
        let largest = sizes.iter().map(|&(workers, _)| workers).max().unwrap_or(0);
        let racks = Racks { count: sizes.len() as u8, largest, total };
        Ok(Some(Layout { sizes, racks }))
    }
}

impl Layout {
    /// Members of this server, and how many of them complete a slot.
    pub fn members(&self, standing: Standing) -> (u8, u8) {
        match standing {
            Standing::Top => (self.racks.count, self.racks.count),
            Standing::Rack(rack, _) => self.sizes[usize::from(rack)],
        }
    }

    /// Whether workers may go on without somebody of theirs.
    pub fn by_quorum(&self) -> bool {
        self.sizes.iter().any(|(workers, quorum)| quorum < workers)
    }

    /// What this server is in the job.
    pub fn level(&self, standing: Standing) -> Level {
        match standing {
            Standing::Top => Level::Root(self.racks),
            // How many ports the root has, it says itself.
            Standing::Rack(rack, at) => {
                Level::Rack { racks: self.racks, rack: WorkerId(rack), root: Endpoint::udp(at), ports: 1 }
            }
        }
    }

    /// What a server in this position tells its members of a job of these racks.
    fn welcome_of_members(&self, standing: Standing, welcome: &Welcome) -> Welcome {
        let (members, quorum) = self.members(standing);
        let first: u16 = match standing {
            Standing::Top => 0,
            Standing::Rack(rack, _) => {
                self.sizes[..usize::from(rack)].iter().map(|&(w, _)| u16::from(w)).sum()
            }
        };
        let rack = Rack {
            racks: self.racks.count,
            rack: match standing {
                Standing::Top => WorkerId::NONE,
                Standing::Rack(rack, _) => WorkerId(rack),
            },
            workers: self.racks.total,
            quorum: self.sizes.iter().map(|&(_, quorum)| u16::from(quorum)).sum(),
            first: Rank(first),
            layout: rack_layout(&self.sizes),
        };
        let features = if matches!(standing, Standing::Top) { FEATURE_ROOT } else { 0 };
        let (min_workers, max_workers) = (members, members);
        Welcome { quorum, min_workers, max_workers, features, rack: Some(rack), ..*welcome }
    }

    /// What members are told, and what the root must say if this is a rack.
    pub fn welcome(&self, standing: Standing, welcome: &Welcome) -> (Welcome, Option<Root>) {
        let root = match standing {
            Standing::Top => None,
            Standing::Rack(rack, at) => Some(Root {
                at,
                rack: WorkerId(rack),
                welcome: self.welcome_of_members(Standing::Top, welcome),
            }),
        };
        (self.welcome_of_members(standing, welcome), root)
    }
}
