//! thc-controller against real aggregators: always against thc-ps, and against simple_switch_grpc where it is (on the
//! PATH or in the folder `THC_BMV2`) and the test may make network namespaces.
#![allow(clippy::unwrap_used, missing_docs)]

mod certificates;
mod own_table;
mod site;

use own_table::own_table;
use site::{Kind, Site};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use thc_controller::JobSection;
use thc_tests::{Ps, WorkerProcess, write_gradient};
use tonic::Code;

/// A job with these keys.
fn section(name: &str, keys: &str) -> JobSection {
    JobSection { name: Some(name.to_owned()), ..JobSection::parse(keys).unwrap() }
}

/// One of this number, cookie and table.
fn spec(name: &str, workers: u32) -> JobSection {
    let cookie = thc_tests::COOKIE_NUMBER;
    let table = "granularity = 30\nfraction = \"1/32\"\ndata_slots = 64\nnorm_slots = 16";
    section(name, &format!("job = 1\ncookie = {cookie}\nworkers = {workers}\n{table}"))
}

/// What the workers of a job of `spec` end with, on a thc-ps that is configured by hand.
fn reference(coordinates: usize) -> Vec<u8> {
    reference_of(coordinates, &[], &[])
}

/// With these further tables and flags of workers.
fn reference_of(coordinates: usize, tables: &[&str], more: &[&str]) -> Vec<u8> {
    let tables: Vec<&str> = tables.iter().flat_map(|table| ["--tables", table]).collect();
    reference_with(coordinates, &tables, more)
}

/// With these flags of the server and of workers.
fn reference_with(coordinates: usize, flags: &[&str], more: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let ps = Ps::start(2, flags);
    let (inputs, workers): (Vec<_>, Vec<_>) = (0u8..2)
        .map(|number| {
            let input = dir.path().join(format!("{number}.f32"));
            write_gradient(&input, coordinates, number.into());
            let output = input.with_extension("out");
            let (input, out) = (input.to_str().unwrap(), output.to_str().unwrap());
            let flags = [&["--input", input, "--output", out], more].concat();
            (output.clone(), WorkerProcess::start(ps.addr, number, &flags))
        })
        .unzip();
    for worker in workers {
        let end = worker.finish();
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    std::fs::read(&inputs[0]).unwrap()
}

fn life_cycle(site: &Site) {
    let coordinates = 20_000;
    let wanted = reference(coordinates);
    let asked = Instant::now();
    site.create(&spec("quick", 2)).unwrap();
    site.all_reduce(1000, &[]);
    println!("{} ms from `job create` to the end of the first all-reduce", asked.elapsed().as_millis());
    site.delete("quick").unwrap();
    let job = site.create(&spec("train", 2)).unwrap();
    assert_eq!((job.table, job.places.len(), job.places[0].data_base), (1, 1, 0));
    assert_eq!(site.create(&spec("train", 2)).unwrap_err().code(), Code::AlreadyExists);
    let findings = site.diagnose("train");
    assert!(findings.contains("no worker has joined"), "{findings}");
    for _ in 0..2 {
        for output in site.all_reduce(coordinates, &[]) {
            assert_eq!(output, wanted);
        }
    }
    let job = site.job("train").unwrap();
    assert_eq!((job.places[0].sessions, job.places[0].running), (2, false), "{job:?}");
    // 20,000 coordinates are 20 packets and the norms of 4 partitions for each worker and session.
    site.wait_until("counters", |site| {
        let (results, sums) = (site.samples("thc_results", "train"), site.sums("train"));
        let whole = results.first()?.1 >= 48.0 && sums.len() == 2;
        (whole && sums.iter().all(|&sums| sums >= 48)).then_some(())
    });
    site.delete("train").unwrap();
    assert_eq!(site.job("train").unwrap_err().code(), Code::NotFound);
    assert_eq!(site.delete("train").unwrap_err().code(), Code::NotFound);
    let end = site.worker(0, coordinates, 1, &["--join-timeout", "3s"]).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.last_error().contains("job"), "{end:?}");
    // Its counters' index goes to the next job, which begins at zero, and counts its own packets alone.
    site.create(&spec("next", 2)).unwrap();
    assert!(site.all_reduce(coordinates, &[]).iter().all(|output| *output == wanted));
    // 20 DATA, and 5 NORM: of blocks of 8192, 8192, 2048, 1024 and 544 coordinates.
    let sums = |site: &Site| {
        let sums = site.sums("next");
        (sums.len() == 2 && sums.iter().all(|&sum| sum >= 25)).then_some(sums)
    };
    assert_eq!(site.wait_until("counters of the next job", sums), [25, 25]);
    site.delete("next").unwrap();
}

fn tables_and_room(site: &Site) {
    let chosen = |name, workers| section(name, &format!("workers = {workers}\ndata_slots = 512"));
    assert_eq!(site.create(&chosen("a", 4)).unwrap().table, 1);
    assert_eq!(site.rows_of(0, "lookup"), 1);
    assert_eq!(site.create(&chosen("b", 2)).unwrap().table, 2);
    let full = site.create(&chosen("c", 4)).unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains("512 data slots"), "{full}");
    let wrong = site.create(&section("d", "workers = 65")).unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    site.delete("b").unwrap();
    // A job of four workers takes the best table for four, which is there.
    let small = section("c", "workers = 4\ndata_slots = 256");
    assert_eq!(site.create(&small).unwrap().table, 1);
    site.delete("a").unwrap();
    assert_eq!(site.rows_of(0, "lookup"), 1, "it goes with its last job");
    site.delete("c").unwrap();
    assert_eq!(site.rows_of(0, "lookup"), 0);
}

/// A job's further tables, each in its form, to choose from span by span; a form that the target does not do is refused in a line.
fn several_tables(site: &mut Site) {
    let with = |mut job: JobSection, tables: &[&str]| {
        job.options.tables = Some(tables.iter().map(|table| table.parse().unwrap()).collect());
        job
    };
    let asked = with(spec("mixed", 2), &["bits=2,lane=4", "bits=8,lane=16"]);
    let job = site.create(&asked).unwrap();
    assert_eq!((job.table, &job.tables[..]), (1, &[2, 3][..]));
    assert_eq!((site.rows_of(0, "lookup"), site.rows_of(0, "job_tables")), (3, 3));
    let coordinates = 20_000;
    for plan in ["1", "2/4", "8/16", "2/4:4096,raw:1000,8/16:8192,4/8"] {
        let wanted = reference_of(coordinates, &["bits=2,lane=4", "bits=8"], &["--plan", plan]);
        for output in site.all_reduce(coordinates, &["--plan", plan]) {
            assert_eq!(output, wanted, "{plan}");
        }
    }
    // What a restarted controller reads is the same job.
    site.restart_controller();
    let again =
        site.wait_until("the job again", |site| site.job("mixed").ok().filter(|job| job.places[0].connected));
    assert_eq!((again.section, again.tables), (job.section, job.tables));
    let other = |tables: &[&str]| {
        let mut job = spec("other", 2);
        job.options.job = Some(2);
        with(job, tables)
    };
    let twice = site.create(&other(&["bits=2,lane=4"; 2])).unwrap_err();
    assert!(
        twice.message().contains("job other: two of its tables are the same, of 2 bits in 2/4"),
        "{twice}"
    );
    match (site.kind(), site.create(&other(&["bits=2,lane=8"]))) {
        (Kind::Ps, Ok(job)) => assert_eq!(job.tables, [4]),
        (Kind::Bmv2, Err(refused)) => {
            let says = "job other: target s1 has no packets of the form 2/8, bits of an index and of a sum, but 2/4, 4/8, 8/16: ";
            assert!(refused.message().starts_with(says), "{refused}");
        }
        (_, end) => panic!("{end:?}"),
    }
    site.delete("mixed").unwrap();
}

fn target_restarts(site: &mut Site) {
    site.create(&spec("train", 2)).unwrap();
    let workers = site.start_workers(20_000, site.rounds(), &["--timeout", "60s"]);
    site.wait_until("traffic", |site| (site.samples("thc_results", "train").first()?.1 > 50.0).then_some(()));
    site.restart_target(0);
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}\n{}", site.log());
    }
    assert_eq!(site.job("train").unwrap().places[0].sessions, 1, "the session went on");
}

fn controller_restarts(site: &mut Site) {
    site.create(&spec("train", 2)).unwrap();
    let workers = site.start_workers(20_000, site.rounds(), &[]);
    site.wait_until("traffic", |site| (site.samples("thc_results", "train").first()?.1 > 50.0).then_some(()));
    site.restart_controller();
    site.wait_until("the job again", |site| site.job("train").ok().filter(|job| job.places[0].connected));
    assert!(site.log().contains("its session of 2 workers goes on"), "{}", site.log());
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}\n{}", site.log());
        assert_eq!(end.json()["stats"]["failed"], 0, "{end:?}");
    }
    site.wait_until("the end of the session", |site| {
        (!site.job("train").unwrap().places[0].running).then_some(())
    });
    assert_eq!(site.job("train").unwrap().places[0].sessions, 1);
    // And a new one.
    site.all_reduce(1000, &[]);
}

/// A controller that is killed, at whatever moment, has after its restart every job that an answer told of,
/// and the target's rows are those of its jobs.
fn controller_is_killed(site: &mut Site) {
    let (rounds, step) =
        if site.is_slow() { (5, Duration::from_millis(60)) } else { (16, Duration::from_micros(1500)) };
    let mut jobs: BTreeSet<String> = BTreeSet::new();
    let connected = |site: &Site| site.targets()[0].connected.then_some(());
    for round in 0..rounds {
        let name = format!("job{round}");
        // Killed at another moment of the creation each time; after the last of them it is done.
        let created = site.killed_while(step * round as u32, |site| site.create(&small(&name)));
        if created.is_ok() {
            jobs.insert(name.clone());
        }
        site.restart_controller();
        site.wait_until("the target", connected);
        let names = site.jobs().into_iter().map(|job| JobSection::from_job(&job).name().to_owned());
        let there: BTreeSet<String> = names.collect();
        assert!(jobs.is_subset(&there), "{jobs:?} were made, there are {there:?}");
        assert!(there.iter().all(|job| jobs.contains(job) || *job == name), "{there:?}");
        jobs = there;
        assert_eq!(site.rows_of(0, "job_tables"), jobs.len());
        if round % 4 == 3
            && let Some(oldest) = jobs.pop_first()
        {
            site.delete(&oldest).unwrap();
        }
    }
    assert!(!jobs.is_empty(), "some creation was done in time");
}

fn all_or_none(site: &mut Site) {
    // Another controller, whose election id has more than 64 bits, becomes the second target's primary one.
    let usurper = site.usurp(1);
    let refused = site.wait_until("the refusal", |site| site.create(&spec("train", 2)).err());
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("s2"), "{refused}");
    let says = "whose election id is 18446744073709551616, and this one's is 1";
    assert!(refused.message().contains(says), "{refused}");
    assert_eq!(site.job("train").unwrap_err().code(), Code::NotFound);
    assert_eq!(site.rows_of(0, "job_tables"), 0, "nothing is left on the first");
    // What it leaves is not taken from it: the operator raises election_id, or starts the target anew.
    drop(usurper);
    site.restart_target(1);
    site.wait_until("the second target again", |site| site.create(&spec("train", 2)).ok());
    assert_eq!((site.rows_of(0, "job_tables"), site.rows_of(1, "job_tables")), (1, 1));
    site.all_reduce(1000, &[]);
}

fn target_with_certificates(site: &mut Site) {
    site.create(&spec("train", 2)).unwrap();
    site.all_reduce(1000, &[]);
    // It is found again, and who has no certificate is not let in.
    site.restart_target(0);
    site.wait_until("the target again", |site| site.job("train").ok().filter(|job| job.places[0].connected));
    site.all_reduce(1000, &[]);
    site.delete("train").unwrap();
    assert!(site.refuses_strangers(0));
}

/// Whether a test's targets want certificates.
fn wants_certificates(test: &str) -> bool {
    test == "target_with_certificates"
}

/// How many targets a test has.
fn targets(test: &str) -> usize {
    if test == "all_or_none" { 2 } else { 1 }
}

/// Of the smallest slots, so that as many fit as the program has counters for.
fn small(name: &str) -> JobSection {
    let mut job = spec(name, 2);
    (job.options.job, job.options.cookie) = (None, None);
    (job.options.data_slots, job.options.norm_slots) = (Some(16), Some(16));
    job
}

fn many_jobs(site: &mut Site) {
    let room = site.room();
    assert!(room >= 16, "{room}");
    for job in 0..room {
        let mut job = small(&format!("job{job}"));
        job.options.cookie = spec("", 2).options.cookie;
        site.create(&job).unwrap();
    }
    let full = site.create(&small("more")).unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains(&format!("has its {room} jobs")), "{full}");
    for (table, rows) in [("jobs", 0), ("job_tables", room), ("lookup", 1)] {
        assert_eq!(site.rows_of(0, table), rows, "{table}");
    }
    // The last one has the highest counters: its workers join, and they are counted there and nowhere else.
    let last = format!("job{}", room - 1);
    assert_eq!(site.job(&last).unwrap().places[0].group, room as u32);
    site.all_reduce(5000, &["--job", &room.to_string()]);
    site.wait_until("counters", |site| {
        let sums = site.sums(&last);
        (sums.len() == 2 && sums.iter().all(|&sums| sums >= 6)).then_some(())
    });
    for job in 0..room {
        let job = format!("job{job}");
        let samples = site.samples("thc_packets", &job);
        let packets: f64 = samples.iter().map(|(_, packets)| packets).sum();
        assert_eq!((samples.len(), packets > 0.0), (2, job == last), "{samples:?}");
    }
    for job in 0..room {
        site.delete(&format!("job{job}")).unwrap();
    }
    site.assert_empty();
    println!("{room} jobs at a time");
}

fn jobs_come_and_go(site: &mut Site) {
    // Within minutes: BMv2 takes tens of milliseconds for a change.
    let (warm, cycles) = site.cycles();
    let cycle = |cycles: usize| {
        for number in 0..cycles {
            let name = format!("cycle{number}");
            site.create(&small(&name)).unwrap();
            site.delete(&name).unwrap();
        }
    };
    cycle(warm);
    let before = site.memory();
    cycle(cycles - warm);
    let after = site.memory();
    println!(
        "resident memory of controller and aggregator after {warm} and {cycles} cycles: {before:?} and {after:?} KiB"
    );
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + 4096, "{before} KiB became {after} KiB");
    }
    site.assert_empty();
    // And still works.
    site.create(&spec("train", 2)).unwrap();
    site.all_reduce(1000, &[]);
}

macro_rules! on_each_aggregator {
    ($($name:ident),*) => {
        mod thc_ps { use super::*; $(#[test] fn $name() { super::$name(&mut Site::start(Kind::Ps, targets(stringify!($name)), wants_certificates(stringify!($name))).unwrap()); })* }
        mod bmv2 {
            use super::*;
            $(#[test] fn $name() {
                match Site::start(Kind::Bmv2, targets(stringify!($name)), wants_certificates(stringify!($name))) {
                    Ok(mut site) => super::$name(&mut site),
                    Err(reason) => println!("not run: {reason}"),
                }
            })*
        }
    };
}

on_each_aggregator!(
    life_cycle,
    tables_and_room,
    several_tables,
    own_table,
    target_restarts,
    controller_restarts,
    controller_is_killed,
    all_or_none,
    many_jobs,
    jobs_come_and_go,
    target_with_certificates
);

#[test]
fn when_a_target_is_lost_workers_go_to_the_next() {
    let mut site = Site::start(Kind::Ps, 2, false).unwrap();
    site.create(&spec("train", 2)).unwrap();
    let url = site.url("train");
    let at = |site: &Site| site.job("train").unwrap().places.iter().map(|p| p.sessions).collect::<Vec<_>>();
    for wanted in [[1, 0], [1, 1]] {
        let workers: Vec<_> = (0..2)
            .map(|_| WorkerProcess::with_flags(None, &["--ps", &url, "--coordinates", "5000", "--json"]))
            .collect();
        let ends: Vec<_> = workers.into_iter().map(WorkerProcess::finish).collect();
        for end in &ends {
            assert_eq!(end.code, Some(0), "{end:?}");
        }
        assert_eq!(at(&site), wanted);
        site.stop_target(0);
    }
}

#[test]
fn slots_are_dealt_to_servers_and_no_bit_changes() {
    let coordinates = 300_000;
    let many = "1500";
    let (one, last) = (reference(coordinates), reference_of(coordinates, &[], &["--repeat", many]));
    let mut site = Site::start(Kind::Ps, 3, false).unwrap();
    let servers = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let mut dealt = JobSection { servers: servers(&["s2", "s1", "s3"]), ..spec("train", 2) };
    dealt.options.data_slots = Some(256);
    // What cannot be is one clear line, and made nowhere.
    let refused = |site: &Site, change: &dyn Fn(&mut JobSection)| {
        let mut asked = dealt.clone();
        change(&mut asked);
        site.create(&asked).unwrap_err().message().to_owned()
    };
    for (names, says) in [
        (&["s1", "s2", "s1"][..], "servers names s1 twice"),
        (&["s1"], "servers names s1 alone"),
        (&["s1", "s9"], "there is no target \"s9\", but s1, s2, s3"),
    ] {
        let said = refused(&site, &|asked| asked.servers = servers(names));
        assert!(said.contains(says), "{said}");
    }
    let said = refused(&site, &|asked| asked.options.data_slots = Some(128));
    assert!(said.contains("with 3 shares give at least 192, or some have none"), "{said}");
    let said = refused(&site, &|asked| asked.targets = servers(&["s1"]));
    assert!(said.contains("give servers, which have a share each, or targets"), "{said}");
    let said = refused(&site, &|asked| asked.options.quorum = Some(1));
    assert!(said.contains("need all workers in every sum"), "{said}");
    assert!(site.jobs().is_empty());

    let job = site.create(&dealt).unwrap();
    let named: Vec<_> = job.places.iter().map(|place| place.target.as_str()).collect();
    assert_eq!(named, ["s2", "s1", "s3"]);
    let shown = JobSection::from_job(&job);
    assert_eq!((shown.servers, shown.targets.len()), (dealt.servers.clone(), 0));
    // By name, at the first of the servers; all three add up.
    let run_for = |site: &Site, repeat: &str, timeout: &str| -> Vec<WorkerProcess> {
        let start = |rank: u8| {
            let input = site.folder().join(format!("{rank}.f32"));
            write_gradient(&input, coordinates, rank.into());
            let output = input.with_extension("out");
            let (input, output, rank) = (input.to_str().unwrap(), output.to_str().unwrap(), rank.to_string());
            let flags = ["--ps", &site.url("train"), "--worker", &rank, "--input", input, "--output", output];
            WorkerProcess::with_flags(
                None,
                &[&flags[..], &["--repeat", repeat, "--timeout", timeout, "--json"]].concat(),
            )
        };
        (0..2).map(start).collect()
    };
    let run = |site: &Site, repeat: &str| run_for(site, repeat, "30s");
    let finish = |site: &Site, workers: Vec<WorkerProcess>, wanted: &[u8]| {
        for end in workers.into_iter().map(WorkerProcess::finish) {
            assert_eq!(end.code, Some(0), "{end:?}\n{}", site.log());
        }
        for rank in 0..2 {
            assert!(std::fs::read(site.folder().join(format!("{rank}.out"))).unwrap() == wanted, "{rank}");
        }
    };
    let results = |site: &Site| {
        let samples = site.samples("thc_results", "train");
        samples.into_iter().filter(|(_, results)| *results > 20.0).collect::<Vec<_>>()
    };
    finish(&site, run(&site, "1"), &one);
    site.wait_until("sums at all servers", |site| (results(site).len() == 3).then_some(()));
    // One is killed and started again, and the controller: the session goes on.
    let sessions = |site: &Site| -> Vec<u32> {
        site.job("train").unwrap().places.iter().map(|place| place.sessions).collect()
    };
    let workers = run(&site, many);
    site.wait_until("the second session", |site| (sessions(site) == [2, 2, 2]).then_some(()));
    site.restart_target(2);
    site.restart_controller();
    finish(&site, workers, &last);
    site.wait_until("the end of the session", |site| {
        site.job("train").unwrap().places.iter().all(|place| !place.running).then_some(())
    });
    assert_eq!(sessions(&site), [2, 2, 2], "{}", site.log());
    // One dies for good: the error names its address.
    let workers = run_for(&site, many, "5s");
    site.wait_until("the third session", |site| (sessions(site) == [3, 3, 3]).then_some(()));
    site.stop_target(1);
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("nobody listens on 127.0.0.1:"), "{end:?}");
    }
    site.stop_target(0);
    site.delete("train").unwrap();
    for table in ["job_tables", "jobs", "members"] {
        assert_eq!(site.rows_of(2, table), 0, "{table}");
    }
}

#[test]
fn workers_get_numbers_and_their_reports_arrive() {
    let site = Site::start(Kind::Ps, 1, false).unwrap();
    site.create(&spec("train", 2)).unwrap();
    let url = site.url("train");
    let flags = ["--ps", url.as_str(), "--coordinates", "200000", "--repeat", "4000", "--json"];
    let workers = [WorkerProcess::with_flags(None, &flags), WorkerProcess::with_flags(None, &flags)];
    site.wait_until("reports", |site| {
        (site.samples("thc_worker_round_trip_seconds", "train").len() == 2).then_some(())
    });
    let findings = site.diagnose("train");
    assert!(!findings.contains("PROBLEM"), "{findings}");
    // There is no third place.
    let third = WorkerProcess::with_flags(None, &["--ps", &url, "--coordinates", "1000"]).finish();
    assert_eq!(third.code, Some(1), "{third:?}");
    assert!(third.last_error().contains("has its 2 workers"), "{third:?}");
    let nobody =
        WorkerProcess::with_flags(None, &["--ps", &site.url("nothing"), "--coordinates", "1000"]).finish();
    assert!(nobody.last_error().contains("there is no job \"nothing\""), "{nobody:?}");
    let mut numbers = Vec::new();
    for end in workers.map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
        assert_eq!(end.json()["job"], 1, "{end:?}");
        numbers.push(end.json()["worker"].as_u64());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [Some(0), Some(1)], "each has told its own number");
}

/// thc-ps itself notifies the other workers: its controller never sees the ICMP error of the killed worker's host.
#[test]
fn a_killed_worker_is_known_within_five_seconds() {
    let site = Site::start(Kind::Ps, 1, false).unwrap();
    site.create(&spec("train", 2)).unwrap();
    let mut workers = site.start_workers(4_000_000, 100_000, &[]);
    site.wait_until("sums", |site| site.sums("train").iter().any(|&sums| sums > 0).then_some(()));
    workers.remove(1).kill();
    let killed = Instant::now();
    let end = workers.remove(0).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.last_error().contains("worker 1 left or ended after "), "{end:?}");
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}
