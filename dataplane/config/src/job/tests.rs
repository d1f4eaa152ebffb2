#![allow(clippy::unwrap_used)]

use super::*;
use serde::Deserialize;
use thc_protocol::TableId;
use thc_protocol::wire::Shares;

/// The smallest file that is complete.
const SMALL: &str = "[[job]]\njob = 1\ncookie = 0x77\nworkers = 4\n";

#[derive(Deserialize)]
struct File {
    job: Vec<JobOptions>,
}

/// The jobs of a server that stands there.
fn check_at(text: &str, place: &ServerPlace) -> Result<Vec<JobSetup>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.message().replace('\n', " "))?;
    validate_jobs(&file.job, place).map_err(|error| error.to_string())
}

fn check(text: &str) -> Result<Vec<JobSetup>, String> {
    check_at(text, &ServerPlace::alone(1))
}

/// The first of two servers that have shares.
fn share() -> ServerPlace {
    let at = [7001, 7002].map(|port| ([127, 0, 0, 1], port).into());
    ServerPlace { shares: Shares::new(&at, 1).unwrap(), ..ServerPlace::alone(1) }
}

/// A file with the small job and more keys of it.
fn job(more: &str) -> String {
    format!("{SMALL}{more}\n")
}

#[test]
fn norm_slots_follow_the_block() {
    for (block, slots) in [(20, 64), (17, 64), (16, 128), (13, 1024), (10, 1024)] {
        let jobs = check(&job(&format!("block = {block}"))).unwrap();
        assert_eq!((jobs[0].welcome.block, jobs[0].config.norm_slots), (block, slots));
        let setup = check(&job(&format!("block = {block}\nnorm_slots = 6"))).unwrap();
        assert_eq!((setup[0].welcome.norm_slots, setup[0].config.norm_slots), (6, 6));
    }
}

#[test]
fn the_default_seed_depends_on_cookie_and_job_alone() {
    let seed = |text: &str| check(text).unwrap()[0].welcome.job_seed;
    assert_eq!(seed(SMALL), seed(&job("data_slots = 8\nquorum = 2")));
    assert_ne!(seed(SMALL), seed(&SMALL.replace("0x77", "0x78")));
    assert_ne!(seed(SMALL), seed(&SMALL.replace("job = 1", "job = 2")));
}

/// P44: shares pack to what their tables need, others only if they have a lane.
#[test]
fn shares_pack_their_sums() {
    let (alone, share) = (ServerPlace::alone(1), share());
    let forms = |place: &ServerPlace, keys: &str| {
        let jobs = check_at(&job(keys), place).unwrap();
        jobs[0].welcome.tables.iter().map(|table| table.form.to_string()).collect::<Vec<_>>().join(" ")
    };
    let table = "granularity = 30\nfraction = 0.03125\ntables = [{ bits = 8 }, { bits = 2, granularity = 3, fraction = 0.1 }]";
    assert_eq!(forms(&share, table), "4/7 8/10 2/5");
    assert_eq!(forms(&alone, table), "4/8 8/16 2/8");
    assert_eq!(forms(&share, &format!("lane = 8\n{table}")), "4/8 8/10 2/5");
    assert_eq!(forms(&alone, &format!("lane = 7\n{table}")), "4/7 8/16 2/8");
    let refused = check(&job("lane = 6\ngranularity = 30\nfraction = 0.1")).unwrap_err();
    assert!(refused.contains("does not fit lanes of 6 bits, which hold 63"), "{refused}");
}

#[test]
fn a_job_may_have_tables_of_every_width() {
    let jobs = check(&job(
        "tables = [{ bits = 1 }, { bits = 2, lane = 16 }, { bits = 8 }, { bits = 3, table_id = 255 }]",
    ))
    .unwrap();
    let setup = &jobs[0];
    let rows: Vec<_> = setup.welcome.tables.iter().map(|t| (t.id.0, t.bits, t.form.to_string())).collect();
    let expected = [(1, 4, "4/8"), (254, 1, "1/8"), (253, 2, "2/16"), (252, 8, "8/16"), (255, 3, "3/8")];
    assert_eq!(rows, expected.map(|(id, bits, form)| (id, bits, form.to_owned())));
    assert_eq!(setup.config.tables, [1, 254, 253, 252, 255].map(TableId));
    let eight = &setup.welcome.tables[3];
    assert_eq!((eight.granularity, eight.values, eight.fraction < 0.01), (255, [0; 16], true));
    // Two jobs share what is the same table, and take other numbers for what is not.
    let two = format!(
        "{}[[job]]\njob = 2\ncookie = 7\nworkers = 4\ntables = [{{ bits = 3 }}, {{ bits = 1 }}]\n",
        job("tables = [{ bits = 1 }]")
    );
    let ids = |job: &JobSetup| job.welcome.tables.iter().map(|t| t.id.0).collect::<Vec<_>>();
    assert_eq!(check(&two).unwrap().iter().map(ids).collect::<Vec<_>>(), [vec![1, 255], vec![2, 254, 255]]);
    // As a flag; and what is no table.
    let flag: TableOptions = "bits=2, lane=4,granularity=3,fraction=1/8,table_id=7".parse().unwrap();
    assert_eq!((flag.bits, flag.lane, flag.granularity, flag.table_id), (Some(2), Some(4), Some(3), Some(7)));
    for wrong in ["2", "bits=x", "width=3", "fraction=2", "table=0,3,5,9"] {
        assert!(wrong.parse::<TableOptions>().is_err(), "{wrong}");
    }
    for (text, says) in [
        ("tables = [{ bits = 5 }]", "job 1: bits is 5: indices have 1, 2, 3, 4 or 8 bits"),
        ("tables = [{ bits = 8, lane = 8 }]", "job 1: lane is 8: bits = 8 needs lane = 16"),
        ("tables = [{ bits = 2, lane = 17 }]", "job 1: lane is 17: use 4 to 16"),
        ("tables = [{ table_id = 1 }]", "job 1: table_id is 1: two of its tables have this number"),
        (
            "tables = [{ bits = 3, lane = 4 }]",
            "job 1: the sums of 4 workers with bits = 3 do not fit lanes of 4 bits: use lane = 8",
        ),
        (
            "tables = [{ bits = 2, lane = 4, granularity = 4, fraction = 0.1 }]",
            "= 16 does not fit lanes of 4 bits, which hold 15: use a granularity of at most 3, or lane = 8",
        ),
        ("tables = [{ wide = 2 }]", "unknown field"),
    ] {
        let error = check(&job(text)).unwrap_err();
        assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
    }
    let many = format!("tables = [{}]", ["{ bits = 1 }"; 16].join(", "));
    assert!(check(&job(&many)).unwrap_err().contains("at most 16 tables"));
}

/// P24: a session that outlives a restart names its table by id, so it must not depend on other jobs.
#[test]
fn a_table_keeps_its_id_when_another_job_goes() {
    let job = |number: u16, more: &str| format!("[[job]]\njob = {number}\nworkers = 4\ncookie = 7\n{more}\n");
    let (first, second) = (job(1, "granularity = 30\nfraction = 0.1"), job(2, ""));
    let both = check(&format!("{first}{second}")).unwrap();
    let alone = check(&second).unwrap();
    assert_eq!(both[1].welcome, alone[0].welcome);
    assert_eq!(both[1].config, alone[0].config);
    let ids = |text: &str| {
        let jobs = check(text)?;
        assert!(jobs.iter().all(|job| job.config.tables == [job.welcome.tables.first().id]));
        Ok::<_, String>(jobs.iter().map(|job| job.welcome.tables.first().id.0).collect::<Vec<u8>>())
    };
    assert_eq!(ids(&format!("{}{}{}", job(0, ""), job(255, ""), job(65535, ""))), Ok(vec![255, 255, 255]));
    let far = job(256, "");
    assert_eq!(
        ids(&format!("{first}{far}")),
        Err("job 256: table_id is 1: job 1 has a different table of this number, give one of the jobs another table_id, 1 to 255".to_owned())
    );
    assert_eq!(ids(&format!("{first}{}", job(256, "table_id = 9"))), Ok(vec![1, 9]));
    for wrong in [0, 256] {
        let error = ids(&job(1, &format!("table_id = {wrong}"))).unwrap_err();
        assert_eq!(error, format!("job 1: table_id is {wrong}: use 1 to 255"));
    }
}

/// Tables that are given value by value: what they become, and one clear error for each that is none.
#[test]
fn a_job_may_have_a_table_of_its_own() {
    let first = |keys: &str| {
        let jobs = check(&job(keys))?;
        let table = *jobs[0].welcome.tables.first();
        Ok::<_, String>((table, jobs[0].expected_nmse().unwrap()))
    };
    let (table, error) = first("table = [0, 1, 2, 9]\nfraction = 0.1").unwrap();
    assert_eq!((table.bits, table.granularity, table.fraction), (2, 9, 0.1));
    assert_eq!(table.values[..5], [0, 1, 2, 9, 0]);
    let (best, least) = first("table = [0, 1, 2, 9]").unwrap();
    assert!(best.fraction != 0.1 && least < error, "{least} {error}");
    // The published table, value by value, is the published one, and its error is the sum of rounding / 4 and truncation.
    let values = "table = [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30]\nfraction = '1/32'";
    let published = first("granularity = 30\nfraction = '1/32'").unwrap();
    assert_eq!(first(values).unwrap(), published);
    assert!((published.1 - 0.0105).abs() < 1e-4, "{}", published.1);
    let further = check(&job("tables = [{ table = [0, 3], fraction = 0.5 }]")).unwrap();
    assert_eq!(further[0].welcome.tables[1].values[..3], [0, 3, 0]);
    for (keys, says) in [
        ("table = []", "table is []: 0 values are no table, give 2, 4, 8 or 16"),
        ("table = [0, 1, 2]", "table is [0, 1, 2]: 3 values are no table"),
        ("table = [1, 2]", "table is [1, 2]: let it begin with 0"),
        ("table = [0, 4, 4, 9]", "values must increase, and 4 follows 4"),
        ("table = [0, 5, 4, 9]", "values must increase, and 4 follows 5"),
        ("table = [0, 1, 2, 256]", "let it end with at most 255"),
        ("table = [0, -1]", "invalid value: integer `-1`, expected u64"),
        ("table = [0, 64]", "workers × granularity = 4 × 64 = 256 does not fit lanes of 8 bits"),
        ("table = [0, 63]\nbits = 2", "bits is 2: table has 1, leave bits out"),
        ("table = [0, 63]\ngranularity = 62", "granularity is 62: table has 63, leave granularity out"),
        ("tables = [{ table = [0, 1, 1, 2] }]", "values must increase, and 1 follows 1"),
    ] {
        let error = check(&job(keys)).unwrap_err();
        assert!(error.contains(says) && !error.contains('\n'), "{keys}: {error}");
    }
}

/// A method stands for its keys, and another value of one of them is an error that names both.
#[test]
fn a_method_fixes_its_keys() {
    let of = |keys: &str| check(&job(keys)).map(|jobs| (jobs[0].welcome, jobs[0].config.clone()));
    let published = of("method = 'thc-paper'").unwrap();
    assert_eq!(Ok(&published), of("bits = 4\ngranularity = 30\nfraction = '1/32'\nblock = 20").as_ref());
    assert_eq!(Ok(&published), of("method = 'thc-paper'\nbits = 4\nblock = 20").as_ref());
    assert_eq!(of("method = 'default'"), of(""));
    for (keys, says) in [
        ("bits = 2", "bits is 2: method = thc-paper fixes bits = 4, leave one of them out"),
        ("granularity = 31", "granularity is 31: method = thc-paper fixes granularity = 30"),
        ("fraction = 0.1", "fraction is 1/10: method = thc-paper fixes fraction = 1/32"),
        ("block = 13", "block is 13: method = thc-paper fixes block = 20"),
        ("table = [0, 1]", "table is [0, 1]: method = thc-paper fixes table"),
        ("tables = [{ bits = 2 }]", "tables is a list of 1: method = thc-paper fixes tables"),
    ] {
        let error = of(&format!("method = 'thc-paper'\n{keys}")).unwrap_err();
        assert!(error.contains(says), "{keys}: {error}");
    }
    assert!(of("method = 'thc'").unwrap_err().contains("expected `default` or `thc-paper`"));
    let (welcome, _) = published;
    assert_eq!(Method::ThcPaper.check(welcome.tables.first(), welcome.block), Ok(()));
    assert_eq!(Method::Default.check(welcome.tables.first(), 10), Ok(()));
    for (keys, says) in [
        ("block = 20", "method is thc-paper, which has granularity = 30, and the job has 61"),
        ("granularity = 30\nfraction = '1/32'", "has block = 20, and the job has 13"),
    ] {
        let (other, _) = of(keys).unwrap();
        let error = Method::ThcPaper.check(other.tables.first(), other.block).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
