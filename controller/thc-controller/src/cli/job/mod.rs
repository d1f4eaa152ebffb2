//! `job`: create, list, show, delete.

mod text;

use text::{described, listed};

use super::connection::Connection;
use super::{Failure, print, print_json};
use clap::{Args, Subcommand, ValueEnum};
use std::time::{Duration, Instant};
use thc_control_proto::v1::{
    CreateJobRequest, DeleteJobRequest, GetJobRequest, Job, JobSpec, ListJobsRequest, UpdateJobRequest,
    update_job_request,
};
use thc_controller::{asked_rack, asked_table};
use thc_options::TableOptions;
use tonic::Code;

const CREATE: &str = "\
Examples:
  Four workers; the best table for four is chosen:
    thc-controller job create train --workers 4

  The paper's table and partial aggregation, on one target of several:
    thc-controller job create lossy --workers 8 --granularity 30 --fraction 1/32 \\
        --quorum 7 --policy best-effort --deadline 50ms --target ps1

  The slots dealt to servers beside the workers:
    thc-controller job create lm --workers 4 --servers h1,h2,h3,h4

  With number and secret, workers can join without asking the controller:
    THC_COOKIE=0x1234abcd thc-controller job create fixed --workers 2 --number 7";

const UPDATE: &str = "\
Of a job whose members come and go, --gone-after and --gather count at once, and all else when its next session begins: where one \
runs, that is at its next boundary between all-reduces, with the same workers. What these have no place in is refused. A job that always \
has as many workers changes while nobody is in it. Number, cookie, slots, block, quorum, policy and the target where workers join stay: delete the \
job and create it for others.

Examples:
  thc-controller job update train --max-workers 8
  thc-controller job update train --gone-after 10s --spares ps2
  thc-controller job update train --granularity 30 --fraction 1/32 --spares none";

const WAIT: &str = "\
Example:
    thc-controller job wait train --for idle && thc-controller job delete train

Exit status: 0 it is so; 1 it was not within --timeout.";

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(250);

/// What can be done with jobs.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a job on all its targets, or on none
    #[command(after_help = CREATE)]
    Create(Box<CreateFlags>),
    /// List all jobs
    List,
    /// Show one job: parameters, and its place on each target
    Show(NameFlags),
    /// Change a job: how many workers its sessions have, its tables, its spares, how long it waits
    #[command(after_help = UPDATE)]
    Update(UpdateFlags),
    /// End a job's session and take it from its targets
    Delete(DeleteFlags),
    /// Wait until a job is so
    #[command(after_help = WAIT)]
    Wait(WaitFlags),
}

/// A job that is there.
#[derive(Args, Debug)]
pub struct NameFlags {
    /// The job's name
    name: String,
}

/// A job that goes.
#[derive(Args, Debug)]
pub struct DeleteFlags {
    /// The job's name
    name: String,
    /// Do not ask, even if its session runs
    #[arg(long, short)]
    yes: bool,
}

/// What is waited for.
#[derive(Args, Debug)]
pub struct WaitFlags {
    /// The job's name
    name: String,
    /// For what
    #[arg(long = "for", value_enum, default_value = "running")]
    state: Awaited,
    /// For so long
    #[arg(long, value_name = "TIME", default_value = "10m")]
    timeout: humantime::Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Awaited {
    /// A session of it runs
    Running,
    /// It is there, no session of it runs, and nothing of it waits to be changed
    Idle,
    /// It is there no more
    Deleted,
}

impl Awaited {
    /// Whether a job that is there is so.
    fn is(self, job: &Job) -> bool {
        let runs = job.places.iter().any(|place| place.running);
        match self {
            Awaited::Running => runs,
            Awaited::Idle => !runs && job.pending.is_empty() && job.next.is_none(),
            Awaited::Deleted => false,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// Lost packets are sent again until they arrive
    Reliable,
    /// After the deadline, missing coordinates count as zero
    BestEffort,
}

/// What of a job changes.
#[derive(Args, Debug)]
pub struct UpdateFlags {
    /// The job's name
    name: String,
    /// Sessions of so many workers at least: members come and go
    #[arg(long, value_name = "N", conflicts_with = "workers")]
    min_workers: Option<u32>,
    /// And of so many at most
    #[arg(long, value_name = "N", conflicts_with = "workers")]
    max_workers: Option<u32>,
    /// Always so many workers
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// A member that is silent for so long is gone
    #[arg(long, value_name = "TIME")]
    gone_after: Option<humantime::Duration>,
    /// How long the first session waits for more workers
    #[arg(long, value_name = "TIME")]
    gather: Option<humantime::Duration>,
    /// Bits per coordinate on the way up, 1 to 4
    #[arg(long, value_name = "B")]
    bits: Option<u32>,
    /// Granularity of the lookup table, for sessions of all sizes
    #[arg(long, value_name = "G", requires = "fraction")]
    granularity: Option<u32>,
    /// Truncated fraction, such as 1/32
    #[arg(long, value_name = "P", requires = "granularity")]
    fraction: Option<String>,
    /// Further lookup tables in place of those that it has, as in `job create`; or none
    #[arg(long, value_name = "TABLE")]
    tables: Vec<String>,
    /// Targets that stand by in place of those that do; or none
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    spares: Vec<String>,
}

/// What a list becomes: nothing if it is not given, and an empty one if it is `none`.
fn list(given: Vec<String>) -> Option<Vec<String>> {
    match given.as_slice() {
        [] => None,
        [only] if only == "none" => Some(Vec::new()),
        _ => Some(given),
    }
}

impl UpdateFlags {
    fn request(self) -> Result<UpdateJobRequest, Failure> {
        let name = self.name;
        let tables = list(self.tables).map(|tables| {
            let table = |text: String| {
                let table: TableOptions =
                    text.parse().map_err(|error| Failure::usage(format!("--tables {text}: {error}")))?;
                asked_table(&name, &table).map_err(|error| Failure::usage(error.to_string()))
            };
            tables.into_iter().map(table).collect::<Result<_, _>>()
        });
        let asked = UpdateJobRequest {
            name: name.clone(),
            min_workers: self.min_workers,
            max_workers: self.max_workers,
            gone_after_ms: milliseconds(self.gone_after),
            gather_ms: milliseconds(self.gather),
            workers: self.workers,
            bits: self.bits,
            granularity: self.granularity,
            fraction: self.fraction,
            tables: tables.transpose()?.map(|tables| update_job_request::Tables { tables }),
            spares: list(self.spares).map(|targets| update_job_request::Spares { targets }),
        };
        if asked == (UpdateJobRequest { name: name.clone(), ..UpdateJobRequest::default() }) {
            return Err(Failure::usage(format!(
                "job {name}: nothing to change: give --min-workers, --max-workers, --gone-after, --spares or another flag of --help"
            )));
        }
        Ok(asked)
    }
}

/// A time of a flag.
fn milliseconds(time: Option<humantime::Duration>) -> Option<u32> {
    time.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX))
}

/// What a job is made of.
#[derive(Args, Debug)]
pub struct CreateFlags {
    /// What you and the workers call it: letters, digits, '-', '_' and '.', at most 63
    name: String,
    /// How many workers take part, 1 to 64
    #[arg(long, value_name = "N", required_unless_present_any = ["racks", "max_workers"], conflicts_with_all = ["min_workers", "max_workers"])]
    workers: Option<u32>,
    /// Members come and go: sessions of so many workers at least [default: 1]
    #[arg(long, value_name = "N", requires = "max_workers", help_heading = "Members")]
    min_workers: Option<u32>,
    /// And of so many at most, 2 to 64; in place of --workers
    #[arg(long, value_name = "N", help_heading = "Members")]
    max_workers: Option<u32>,
    /// A member that is silent for so long is gone [default: 3s]
    #[arg(long, value_name = "TIME", requires = "max_workers", help_heading = "Members")]
    gone_after: Option<humantime::Duration>,
    /// How long the first session waits for more workers [default: 1s]
    #[arg(long, value_name = "TIME", requires = "max_workers", help_heading = "Members")]
    gather: Option<humantime::Duration>,
    /// Bit budget b: bits per coordinate on the way up, 1 to 4 [default: 4]
    #[arg(long, value_name = "B", help_heading = "Compression")]
    bits: Option<u32>,
    /// Granularity g of the lookup table [default: with --fraction, the best for N workers]
    #[arg(long, value_name = "G", requires = "fraction", help_heading = "Compression")]
    granularity: Option<u32>,
    /// Truncated fraction p, such as 1/32
    #[arg(long, value_name = "P", requires = "granularity", help_heading = "Compression")]
    fraction: Option<String>,
    /// A further lookup table that workers may choose for a tensor, such as bits=2 or bits=2,lane=4,granularity=5,fraction=1/32;
    /// can be repeated, and every target must do its packets
    #[arg(long, value_name = "TABLE", help_heading = "Compression")]
    tables: Vec<TableOptions>,
    /// Slots for gradients: twice as many packets as a worker may have under way, even [default: 256]
    #[arg(long, value_name = "SLOTS", help_heading = "Aggregator")]
    slots: Option<u32>,
    /// Slots for norms, even [default: 64 to 256, the more the smaller the blocks]
    #[arg(long, value_name = "SLOTS", help_heading = "Aggregator")]
    norm_slots: Option<u32>,
    /// Coordinates that are transformed together, as a power of two: 10 to 20, for 2^10 to 2^20 [default: 13]
    #[arg(long, value_name = "LOG2", help_heading = "Compression")]
    block: Option<u32>,
    /// How many workers complete a sum [default: all]
    #[arg(long, value_name = "N", help_heading = "Loss")]
    quorum: Option<u32>,
    /// What happens to lost packets [default: reliable]
    #[arg(long, value_name = "POLICY", help_heading = "Loss")]
    policy: Option<Policy>,
    /// When best-effort gives a packet up [default: 200ms]
    #[arg(long, value_name = "TIME", help_heading = "Loss")]
    deadline: Option<humantime::Duration>,
    /// The job's number on the wire, 1 to 65535 [default: the lowest free one]
    #[arg(long, value_name = "NUMBER", help_heading = "Aggregator")]
    number: Option<u32>,
    /// The secret of workers that join without the controller [default: random]
    #[arg(long, value_name = "NUMBER", env = "THC_COOKIE", hide_env_values = true, value_parser = number, help_heading = "Aggregator")]
    cookie: Option<u32>,
    /// On this target; several times for several, the first preferred [default: all]
    #[arg(long = "target", value_name = "NAME", help_heading = "Aggregator")]
    targets: Vec<String>,
    /// Deal the slots to these targets, a share each; the first begins sessions [default: every target has all slots]
    #[arg(
        long = "servers",
        value_name = "NAME,…",
        value_delimiter = ',',
        conflicts_with = "targets",
        help_heading = "Aggregator"
    )]
    servers: Vec<String>,
    /// Targets that stand by: when the one of --target, or one of --servers, is silent, workers go on there in the middle of an all-reduce
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "Aggregator")]
    spares: Vec<String>,
    /// Workers of each rack of a root, such as 8,8, or 7/8,7/8 for a quorum of 7 in each; in place of --workers
    #[arg(long, value_name = "WORKERS,…", value_delimiter = ',', requires_all = ["rack", "root", "root_mac"], help_heading = "Rack")]
    racks: Vec<String>,
    /// Which of these racks the job's target is, from 0 on: its sums go up to the root, and results come down
    #[arg(long, value_name = "NUMBER", requires = "racks", help_heading = "Rack")]
    rack: Option<u32>,
    /// Where the root is: a thc-ps with a job of the same number, cookie and racks
    #[arg(long, value_name = "ADDRESS:PORT", requires = "racks", help_heading = "Rack")]
    root: Option<String>,
    /// The root's Ethernet address, or that of the router on the way: one of the target's stations
    #[arg(long, value_name = "MAC", requires = "racks", help_heading = "Rack")]
    root_mac: Option<String>,
}

/// Decimal, or hexadecimal after 0x.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "give 32 bits, such as 0x1234abcd".to_owned())
}

impl CreateFlags {
    fn spec(self) -> Result<JobSpec, Failure> {
        let deadline_ms = match self.deadline {
            None => None,
            Some(deadline) => {
                let whole = u32::try_from(deadline.as_millis()).ok().filter(|ms| *ms > 0);
                Some(whole.ok_or_else(|| {
                    Failure::usage(format!("--deadline {deadline}: give a millisecond or more"))
                })?)
            }
        };
        let tables = self.tables.iter().map(|table| asked_table(&self.name, table));
        let tables = tables.collect::<Result<_, _>>().map_err(|error| Failure::usage(error.to_string()))?;
        let rack = asked_rack(&self.name, self.rack, self.racks, self.root, self.root_mac);
        let rack = rack.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(JobSpec {
            name: self.name,
            workers: self.workers.unwrap_or(0),
            bits: self.bits,
            granularity: self.granularity,
            fraction: self.fraction,
            data_slots: self.slots,
            norm_slots: self.norm_slots,
            block: self.block,
            quorum: self.quorum,
            policy: self.policy.map(|policy| match policy {
                Policy::Reliable => "reliable".to_owned(),
                Policy::BestEffort => "best-effort".to_owned(),
            }),
            deadline_ms,
            number: self.number,
            cookie: self.cookie,
            seed: None,
            targets: self.targets,
            servers: self.servers,
            spares: self.spares,
            tables,
            rack,
            min_workers: self.min_workers,
            max_workers: self.max_workers,
            gone_after_ms: milliseconds(self.gone_after),
            gather_ms: milliseconds(self.gather),
        })
    }
}

async fn wait(flags: &WaitFlags, connection: Connection) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let asked = GetJobRequest { name: flags.name.clone() };
        let so = match connection.client().get_job(asked).await {
            Ok(job) => flags.state.is(job.get_ref()),
            Err(status) if status.code() == Code::NotFound && matches!(flags.state, Awaited::Deleted) => true,
            Err(status) => return Err(status.into()),
        };
        if so {
            return Ok(());
        }
        if began.elapsed() >= *flags.timeout {
            let state = format!("{:?}", flags.state).to_lowercase();
            return Err(Failure::failed(format!(
                "job {} is not {state} after {}: `thc-controller diagnose {}` says why",
                flags.name, flags.timeout, flags.name
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Does it.
pub async fn run(command: Command, connection: Connection, json: bool) -> Result<(), Failure> {
    let mut client = connection.client();
    match command {
        Command::Create(flags) => {
            let spec = Some(flags.spec()?);
            let job = client.create_job(CreateJobRequest { spec }).await?.into_inner();
            if json { print_json(&job) } else { print(&described(&job)) }
        }
        Command::List => {
            let list = client.list_jobs(ListJobsRequest {}).await?.into_inner();
            if json { print_json(&list) } else { print(&listed(&list.jobs)) }
        }
        Command::Show(NameFlags { name }) => {
            let job = client.get_job(GetJobRequest { name }).await?.into_inner();
            if json { print_json(&job) } else { print(&described(&job)) }
        }
        Command::Update(flags) => {
            let asked = flags.request()?;
            let job = client.update_job(asked).await?.into_inner();
            if json { print_json(&job) } else { print(&described(&job)) }
        }
        Command::Wait(flags) => wait(&flags, connection).await,
        Command::Delete(DeleteFlags { name, yes }) => {
            let job = match yes {
                true => Job::default(),
                false => client.get_job(GetJobRequest { name: name.clone() }).await?.into_inner(),
            };
            if let Some(place) = job.places.iter().find(|place| place.running) {
                let what = format!("job {name} runs with {} workers on {}", place.members, place.target);
                super::ask(
                    &format!("{what}. End its session and delete it?"),
                    &format!("{what}: give --yes"),
                )?;
            }
            let answer = client.delete_job(DeleteJobRequest { name: name.clone() }).await?.into_inner();
            if json { print_json(&answer) } else { print(&format!("job {name} deleted\n")) }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_control_proto::v1::JobPlace;
    use thc_control_proto::v1::TableSpec;

    fn job() -> Job {
        let spec = JobSpec {
            name: "train".into(),
            workers: 4,
            bits: Some(4),
            granularity: Some(30),
            fraction: Some("1/32".into()),
            data_slots: Some(256),
            norm_slots: Some(64),
            quorum: Some(3),
            policy: Some("best-effort".into()),
            deadline_ms: Some(1500),
            number: Some(9),
            tables: vec![TableSpec {
                bits: Some(2),
                granularity: Some(3),
                fraction: Some("1/8".into()),
                lane: Some(4),
            }],
            ..JobSpec::default()
        };
        let place = |target: &str, connected| JobPlace {
            target: target.into(),
            connected,
            joined: 0b1011,
            running: true,
            data_base: 256,
            ..JobPlace::default()
        };
        Job {
            spec: Some(spec),
            table: 2,
            tables: vec![5],
            next: None,
            pending: String::new(),
            declared: String::new(),
            places: vec![place("s1", true), place("s2", false)],
            created: 0,
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_place() {
        let text = listed(&[job()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("train") && lines[1].ends_with("s1      running     3/4      -  0"),
            "{text}"
        );
        assert!(lines[1].contains("best-effort after 1s 500ms, 3 of 4 complete a sum"), "{text}");
        assert!(lines[2].starts_with('"') && lines[2].contains("away"), "{text}");
        assert!(listed(&[]).contains("job create"));
    }

    #[test]
    fn a_job_shows_its_slots() {
        let text = described(&job());
        assert!(text.starts_with("job train, number 9, made 1970-01-01T00:00:00Z\n"), "{text}");
        assert!(text.contains("table    2: b=4 g=30 p=1/32\n  table    5: 2/4 g=3 p=1/8\n"), "{text}");
        assert!(text.contains("256-511"), "{text}");
    }

    #[test]
    fn numbers_may_be_hexadecimal() {
        assert_eq!(number("0x1234abcd"), Ok(0x1234_abcd));
        assert_eq!(number("17"), Ok(17));
        assert!(number("0x123456789").unwrap_err().contains("32 bits"));
    }
}
