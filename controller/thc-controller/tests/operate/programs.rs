//! The same life of jobs on every program that there is, as a strict P4Runtime server has it.

use crate::controller::Controller;
use crate::strict::Strict;
use p4runtime_proto::p4info;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use thc_protocol::wire::{Header, Join, Kind, Leave, MAX_PACKET};
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_transport::frame::Datagram;

const OWN: ([u8; 6], SocketAddr) =
    ([2, 0xaa, 0, 0, 0, 1], SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 254), 9000)));
pub const COOKIE: u32 = 0xC0FFEE;

/// A program: its P4Info, ports of passes, rows of `passes`, tables of lookups with rows for one, room for tables and jobs.
pub struct Case {
    file: &'static str,
    ports: &'static str,
    passes: usize,
    lookups: (&'static str, usize),
    tables: usize,
    jobs: usize,
}

pub const V1MODEL: Case =
    Case { file: "thc.p4info.txtpb", ports: "[]", passes: 0, lookups: ("lookup", 1), tables: 255, jobs: 64 };
const TOFINO: Case = Case {
    file: "tofino/tofino.p4info.txtpb",
    ports: "[68, 196]",
    passes: 32,
    lookups: ("lookup_", 32 * 256),
    tables: 4,
    jobs: 16,
};
pub const TOFINO2: Case = Case {
    file: "tofino/tofino2.p4info.txtpb",
    ports: "[68]",
    passes: 16,
    lookups: ("lookup_", 64 * 256),
    tables: 4,
    jobs: 16,
};

pub struct Site {
    case: Case,
    pub strict: Strict,
    controller: Option<Controller>,
    /// Further keys of the target.
    keys: &'static str,
}

impl Site {
    pub fn start(case: Case) -> Site {
        Site::with_keys(case, "")
    }

    /// With further keys of the target.
    pub fn with_keys(case: Case, keys: &'static str) -> Site {
        Site::start_in(case, keys, tempfile::tempdir().unwrap())
    }

    fn start_in(case: Case, keys: &'static str, folder: tempfile::TempDir) -> Site {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../p4/build").join(case.file);
        let strict = Strict::start(p4info::parse(&std::fs::read(&path).unwrap()).unwrap());
        let mut site = Site { case, strict, controller: None, keys };
        site.start_controller(folder, b"what the compiler's backend made", &[]);
        site
    }

    fn start_controller(&mut self, folder: tempfile::TempDir, program: &[u8], flags: &[&str]) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../p4/build").join(self.case.file);
        std::fs::write(folder.path().join("chip.bin"), program).unwrap();
        let stations: String = (0..3)
            .map(|n| format!("[[target.station]]\nmac = \"02:00:0a:09:00:0{n}\"\nport = {}\n", 1 + n))
            .collect();
        let config = format!(
            "[[target]]\nname = \"chip\"\naddress = \"{}\"\nip = \"10.9.0.254\"\np4info = {path:?}\ndevice_config = {:?}\npass_ports = {}\n{}\n{stations}",
            self.strict.address,
            folder.path().join("chip.bin"),
            self.case.ports,
            self.keys,
        );
        let controller = Controller::start_with_flags(folder, &config, flags);
        controller.until_connected();
        self.controller = Some(controller);
    }

    /// Another controller with the same jobs, whose target is to load this.
    pub fn restart_controller(&mut self, program: &[u8]) {
        self.restart_controller_with(program, &[]);
    }

    /// The same, with these flags.
    pub fn restart_controller_with(&mut self, program: &[u8], flags: &[&str]) {
        let folder = self.controller.take().unwrap().stop();
        self.start_controller(folder, program, flags);
    }

    pub fn controller(&self) -> &Controller {
        self.controller.as_ref().unwrap()
    }

    /// The whole job's rows: lookups, permission, members, addresses, jobs, and copies of its group.
    pub fn rows(&self) -> [usize; 6] {
        let strict = &self.strict;
        let group = strict.group(1).unwrap_or(0);
        let row = |name: &str| strict.rows(name);
        [row(self.case.lookups.0), row("job_tables"), row("members"), row("addresses"), row("jobs"), group]
    }

    fn wait_until(&self, what: &str, so: impl Fn(&Site) -> bool) {
        self.controller().wait_until(what, |_| so(self));
        assert_eq!(self.strict.state().refused, Vec::<String>::new());
    }

    fn says(&self, worker: u8, kind: Kind, cookie: u32, payload: &[u8]) {
        self.says_to(7, worker, kind, cookie, payload);
    }

    fn says_to(&self, job: u16, worker: u8, kind: Kind, cookie: u32, payload: &[u8]) {
        let from = SocketAddr::from((Ipv4Addr::new(10, 9, job as u8, worker + 1), 5000));
        self.send(from, job, worker, kind, cookie, payload);
    }

    /// A packet from anywhere behind a worker's port.
    pub fn send(&self, from: SocketAddr, job: u16, worker: u8, kind: Kind, cookie: u32, payload: &[u8]) {
        let header = Header::new(kind, 0, JobId(job), WorkerId(worker), Cookie(cookie));
        let mut buffer = [0; MAX_PACKET];
        let payload = header.emit_packet(&mut buffer, payload);
        let from = ([2, 0, 10, 9, 0, worker], from);
        self.strict.packet_in(u16::from(worker) + 1, Datagram { from, to: OWN, ecn: 0, payload }.frame());
    }

    /// Both workers of a job say JOIN.
    pub fn join(&self, job: u16, incarnation: u64) {
        for worker in 0..2 {
            let nonce = incarnation << 8 | u64::from(worker);
            let join = Join { nonce, session: Cookie(0), ends: false, fingerprint: 0, definitions: 0 };
            self.says_to(job, worker, Kind::Join, COOKIE, &join.to_bytes());
        }
    }

    /// The cookie of a packet of this kind that was sent for a job.
    pub fn sent_cookie(&self, job: u16, kind: Kind) -> Option<u32> {
        let sent = self.strict.state().sent.clone();
        sent.iter().find_map(|frame| {
            let datagram = Datagram::parse(frame).ok()?;
            let (header, _) = Header::parse(datagram.payload).ok()?;
            (header.job.0 == job && header.kind == kind).then_some(header.cookie.0)
        })
    }

    /// Both workers join until they are welcomed; the session's cookie.
    pub fn join_workers(&self, incarnation: u64) -> u32 {
        self.joined_at(7, incarnation)
    }

    /// The same of another job.
    pub fn joined_at(&self, job: u16, incarnation: u64) -> u32 {
        self.strict.state().sent.clear();
        self.controller().wait_until("welcomed", |_| {
            self.join(job, incarnation);
            self.sent_cookie(job, Kind::Welcome).is_some()
        });
        self.sent_cookie(job, Kind::Welcome).unwrap()
    }

    /// Both workers leave.
    pub fn leave(&self, incarnation: u64, session: u32) {
        for worker in 0..2_u8 {
            let leave = Leave { nonce: incarnation << 8 | u64::from(worker) };
            self.says(worker, Kind::Leave, session, &leave.to_bytes());
        }
    }

    pub fn with_session(&self) -> [usize; 6] {
        [self.case.lookups.1, 1, 2, 2, 1, 2]
    }

    pub fn create(&self) {
        let cookie = COOKIE.to_string();
        self.controller().ask_done(&[
            "job",
            "create",
            "a",
            "--workers",
            "2",
            "--number",
            "7",
            "--cookie",
            &cookie,
            "--data-slots",
            "64",
            "--norm-slots",
            "32",
        ]);
    }
}

fn life(case: Case) {
    let mut site = Site::start(case);
    let strict = &site.strict;
    assert_eq!([strict.rows("own_address"), strict.rows("own_arp"), strict.rows("control_plane")], [1, 1, 2]);
    assert_eq!((strict.rows("stations"), strict.rows("passes")), (4, site.case.passes));
    assert_eq!(site.rows(), [0; 6]);
    if site.case.passes > 0 {
        let source = strict.values("source");
        assert_eq!(source[0]["address"], 0x0A09_00FE);
        let ports: Vec<_> =
            strict.values("loopback_ports").iter().map(|row| row["port"].to_string()).collect();
        assert_eq!(format!("[{}]", ports.join(", ")), site.case.ports);
    }

    site.create();
    assert_eq!(site.rows(), [site.case.lookups.1, 1, 0, 0, 0, 0]);
    let session = site.join_workers(1);
    assert_eq!(site.rows(), site.with_session());
    let job = &site.strict.values("jobs")[0];
    assert_eq!((job["cookie"], job["workers"], job["quorum"], job["job"]), (session.into(), 2, 2, 7));
    assert_eq!((job["data_slots"], job["norm_slots"], job["group"]), (64, 32, 1));
    if site.case.tables == 4 {
        assert_eq!(site.strict.values("job_tables")[0]["lookup"], 0);
        // The usual table's lanes of a byte: the values of both indices.
        let values = site.strict.values("lookup_a3");
        let at = |byte: u128| values.iter().find(|row| row["indices"] == byte).unwrap()["values"];
        assert_eq!(at(0x00), 0);
        assert_eq!((at(0x0F) >> 8, at(0xF0) & 0xFF), (0, 0));
        assert_eq!(at(0xFF), at(0xF0) | at(0x0F));
        assert!(at(0xF0) >> 8 == at(0x0F) && at(0x0F) > 15);
    }

    // A controller that starts anew finds all as it should be.
    let before = site.strict.state().updates;
    site.restart_controller(b"what the compiler's backend made");
    site.wait_until("as before", |site| site.rows() == site.with_session());
    assert_eq!(site.strict.state().updates, before);

    // A switch that was off gets everything again.
    site.strict.restart();
    site.wait_until("written again", |site| {
        site.rows() == site.with_session() && site.strict.rows("stations") == 4
    });

    // Somebody else writes other values under the job: its session ends (P6), and workers join anew.
    site.strict.disturb(site.case.lookups.0);
    site.strict.cut();
    site.wait_until("ended", |site| site.rows()[4] == 0);
    let again = site.join_workers(2);
    assert_ne!(again, session);
    assert_eq!(site.rows(), site.with_session());

    site.leave(2, again);
    site.wait_until("left", |site| site.rows()[2..] == [0, 0, 0, 0]);
    site.controller().ask_done(&["job", "delete", "a"]);
    assert_eq!(site.rows(), [0; 6]);

    // What is another's stays; nothing was ever refused; no request was longer than servers take.
    assert_eq!(site.strict.group(999), Some(0));
    let state = site.strict.state();
    assert_eq!(state.refused, Vec::<String>::new());
    assert!(state.longest < 4 << 20, "{}", state.longest);
}

fn room(case: Case) {
    let site = Site::start(case);
    let small = |number: usize| {
        let name = format!("j{number}");
        let args = ["job", "create", &name, "--workers", "2", "--data-slots", "2", "--norm-slots", "2"];
        site.controller().ask(&args)
    };
    for number in 0..site.case.jobs {
        assert_eq!(small(number).code, Some(0), "{number}");
    }
    let refused = small(site.case.jobs);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains(&format!("has its {} jobs", site.case.jobs)), "{}", refused.err);
    for number in 0..site.case.jobs {
        site.controller().ask_done(&["job", "delete", &format!("j{number}")]);
    }
    if site.case.tables == 4 {
        for workers in ["2", "3", "4", "5", "6"] {
            let name = format!("t{workers}");
            let args =
                ["job", "create", &name, "--workers", workers, "--data-slots", "2", "--norm-slots", "2"];
            let ended = site.controller().ask(&args);
            let fits = workers != "6";
            assert_eq!(ended.code, Some(i32::from(!fits)), "{workers}: {ended:?}");
            assert!(fits || ended.err.contains("there is room for 4 lookup tables"), "{}", ended.err);
        }
        assert_eq!(site.strict.rows(site.case.lookups.0), 4 * site.case.lookups.1);
    }
    assert_eq!(site.strict.state().refused, Vec::<String>::new());
}

/// Two tables beside the usual one: of 2 bits in lanes of 4, and of 8 in lanes of 16.
fn forms(case: Case) {
    let site = Site::start(case);
    site.controller().ask_done(&[
        "job",
        "create",
        "a",
        "--workers",
        "2",
        "--number",
        "7",
        "--tables",
        "bits=2,lane=4,granularity=5,fraction=1/32",
        "--tables",
        "bits=8",
    ]);
    assert_eq!(site.strict.rows("job_tables"), 3);
    assert_eq!(site.strict.rows(site.case.lookups.0), 3 * site.case.lookups.1);
    if site.case.tables == 4 {
        let rows = site.strict.values("job_tables");
        let halves: Vec<_> = rows.iter().map(|row| (row["lookup"], row["half"])).collect();
        assert_eq!(halves, [(0, 0), (1, 1), (2, 0)]);
        let values = site.strict.values("lookup_b0");
        let at = |lookup: u128, byte: u128| {
            values.iter().find(|row| (row["lookup"], row["indices"]) == (lookup, byte)).unwrap()["values"]
        };
        assert_eq!((at(2, 0xAB), at(1, 0), at(1, 0b1100_0000)), (0xAB, 0, 0x5000));
    }
    assert_eq!(site.strict.state().refused, Vec::<String>::new());
}

/// A rack below a root: where sums go, and tables of 16 bits above whose sums have 8 here.
fn rack(case: Case) {
    let site = Site::start(case);
    let made = site.controller().ask(&[
        "job",
        "create",
        "a",
        "--workers",
        "64",
        "--number",
        "7",
        "--racks",
        "8,8,8,8,8,8,8,8",
        "--rack",
        "0",
        "--root",
        "10.9.0.9:9000",
        "--root-mac",
        "02:00:0a:09:00:02",
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(site.strict.rows("job_tables"), 1);
    assert_eq!(site.strict.rows(site.case.lookups.0), site.case.lookups.1);
    if site.case.tables == 4 {
        let row = &site.strict.values("job_tables")[0];
        assert_eq!((row["lookup"], row["half"]), (0, 1));
    }
    assert_eq!(site.strict.state().refused, Vec::<String>::new());
}

macro_rules! programs {
    ($($name:ident, $case:ident;)*) => {$(
        mod $name {
            #[test]
            fn life() {
                super::life(super::$case);
            }
            #[test]
            fn forms() {
                super::forms(super::$case);
            }
            #[test]
            fn rack() {
                super::rack(super::$case);
            }
        }
    )*};
}

#[test]
fn room_of_tofino() {
    room(TOFINO);
}

programs! {
    v1model, V1MODEL;
    tofino, TOFINO;
    tofino2, TOFINO2;
}

#[test]
fn a_program_whose_passes_have_cells_needs_their_ports() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../p4/build/tofino/tofino2.p4info.txtpb");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let text = format!("[[target]]\naddress = \"127.0.0.1:1\"\nip = \"10.0.0.1\"\np4info = {path:?}\n");
    std::fs::write(&file, text).unwrap();
    let ended = crate::controller::run(&["run", "--config", file.to_str().unwrap()], &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("target.pass_ports") && ended.err.contains("loopback"), "{}", ended.err);
}

#[test]
fn nobody_is_behind_a_port_of_passes() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../p4/build/tofino/tofino2.p4info.txtpb");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let station = "[[target.station]]\nmac = \"02:00:0a:09:00:01\"\nport = 3\n";
    for (cpu_port, ports, more) in [(64, "[68, 3]", station), (68, "[68]", "")] {
        let text = format!(
            "[[target]]\naddress = \"127.0.0.1:1\"\nip = \"10.0.0.1\"\np4info = {path:?}\npass_ports = {ports}\ncpu_port = {cpu_port}\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        let ended = crate::controller::run(&["run", "--config", file.to_str().unwrap()], &[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains("target.pass_ports") && ended.err.contains("station"), "{}", ended.err);
    }
}

/// A switch whose program has other tables than the controller's P4Info is not written to.
#[test]
fn a_program_with_other_tables_is_noticed() {
    let read = |file: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../p4/build").join(file);
        p4info::parse(&std::fs::read(path).unwrap()).unwrap()
    };
    let strict = Strict::start(read(V1MODEL.file));
    strict.has_program(read(TOFINO.file));
    let address = &strict.address;
    let target = format!("[[target]]\nname = \"chip\"\naddress = \"{address}\"\nip = \"10.9.0.254\"\n");
    let controller = Controller::start(&target);
    controller.wait_until("noticed", |controller| {
        controller.ask_done(&["target", "list"]).contains("its program has other tables")
    });
    assert_eq!(strict.state().updates, 0);
    strict.has_program(read(V1MODEL.file));
    controller.until_connected();
}

/// A host can claim any Ethernet address, but not the port that its packets come by.
#[test]
fn a_join_by_another_port_than_its_stations_is_not_taken() {
    let site = Site::start(V1MODEL);
    site.create();
    let join = Join { nonce: 1, session: Cookie(0), ends: false, fingerprint: 0, definitions: 0 };
    let header = Header::new(Kind::Join, 0, JobId(7), WorkerId(1), Cookie(COOKIE));
    let mut buffer = [0; MAX_PACKET];
    let payload = header.emit_packet(&mut buffer, &join.to_bytes());
    let from = ([2, 0, 10, 9, 0, 1], SocketAddr::from((Ipv4Addr::new(10, 9, 7, 2), 5000)));
    let frame = Datagram { from, to: OWN, ecn: 0, payload }.frame();
    let joined = |site: &Site| {
        site.says(0, Kind::Join, COOKIE, &join.to_bytes());
        site.controller().ask_done(&["job", "show", "a"])
    };
    site.controller().wait_until("refused", |controller| {
        site.strict.packet_in(3, frame.clone());
        controller.log().contains("02:00:0a:09:00:01) has sent a request by port 3 and is no station there")
    });
    assert!(site.rows()[4] == 0 && !joined(&site).contains("running"));
    site.join_workers(2);
}
