//! The worker in Python that was written from docs/protocol.md alone, together with the real programs: what the document
//! says must suffice for the same bits.
#![allow(clippy::unwrap_used, missing_docs)]

mod asked;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, write_gradients};

const LENGTH: usize = 200_000;
const FAULTS: [&str; 2] = ["--inject", "loss=0.02,duplicate=0.01,reorder=0.01"];

/// A Python that has NumPy.
fn python() -> Option<&'static str> {
    let has_numpy = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy"]).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_numpy);
    if found.is_none() {
        println!("not run: python_worker: no Python with NumPy (Debian: python3-numpy)");
    }
    found
}

fn script(python: &str, name: &str) -> Command {
    let mut command = Command::new(python);
    // No files of bytecode in the tree.
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python_worker").join(name));
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// One worker in Python as worker `number`, with the flags of `thc-worker` that it has.
fn start_python(python: &str, ps: &Ps, number: usize, input: &Path, more: &[&str]) -> WorkerProcess {
    let output = input.with_extension("out");
    let mut command = script(python, "all_reduce.py");
    command.args(["--ps", &ps.addr.to_string(), "--worker", &number.to_string(), "--cookie", COOKIE]);
    command.args(["--input", text(input), "--output", text(&output)]).args(more);
    WorkerProcess::spawn(command)
}

fn start_real(ps: &Ps, number: usize, input: &Path, more: &[&str]) -> WorkerProcess {
    let output = input.with_extension("out");
    let mut flags = vec!["--input", text(input), "--output", text(&output), "--json"];
    flags.extend(more);
    WorkerProcess::start(ps.addr, number as u8, &flags)
}

/// Waits for all, and holds their means to each other, bit for bit, and to the exact mean.
fn all_equal(workers: Vec<WorkerProcess>, inputs: &[PathBuf], tolerance: f64) -> Vec<Finished> {
    let ends: Vec<Finished> = workers.into_iter().map(WorkerProcess::finish).collect();
    for end in &ends {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let outputs: Vec<Vec<u8>> =
        inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect();
    for (worker, output) in outputs.iter().enumerate() {
        assert_eq!(output.len(), 4 * LENGTH);
        let differing = output.chunks(4).zip(outputs[0].chunks(4)).filter(|(a, b)| a != b).count();
        assert_eq!(differing, 0, "coordinates of worker {worker} that differ from worker 0's");
    }
    let gradients: Vec<Vec<f32>> =
        inputs.iter().map(|input| floats(&std::fs::read(input).unwrap())).collect();
    let (mut error, mut size) = (0.0, 0.0);
    for (i, mean) in floats(&outputs[0]).into_iter().enumerate() {
        let exact = gradients.iter().map(|x| f64::from(x[i])).sum::<f64>() / gradients.len() as f64;
        error += (f64::from(mean) - exact).powi(2);
        size += exact.powi(2);
    }
    println!("NMSE {:.2e}", error / size);
    assert!(error <= tolerance * size, "NMSE {}", error / size);
    ends
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn its_forms_and_numbers_are_those_of_the_vectors() {
    let Some(python) = python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = script(python, "vectors.py");
    command.arg(root);
    let end = WorkerProcess::spawn(command).finish();
    assert!(end.code == Some(0) && end.out.contains("vectors: equal"), "{end:?}");
}

/// The server mistreats its packets, both ways; the worker in Python has each number once.
#[test]
fn with_thc_worker_all_have_the_same_bits() {
    let Some(python) = python() else { return };
    for workers in [2, 3] {
        for (mode, tolerance) in [("thc", 0.025), ("raw", 1e-12)] {
            for in_python in 0..workers {
                let ps = Ps::start(workers, &FAULTS);
                let dir = tempfile::tempdir().unwrap();
                let inputs = write_gradients(dir.path(), workers, LENGTH);
                let flags = ["--mode", mode, "--repeat", "2"];
                let start = |(number, input): (usize, &PathBuf)| {
                    if number == usize::from(in_python) {
                        start_python(python, &ps, number, input, &flags)
                    } else {
                        start_real(&ps, number, input, &flags)
                    }
                };
                let running = inputs.iter().enumerate().map(start).collect();
                let ends = all_equal(running, &inputs, tolerance);
                println!("{workers} workers, {mode}: {}", ends[usize::from(in_python)].out.trim());
            }
        }
    }
}

/// Its own error feedback is thc-worker's own affair, but the tensor has another key then (P3).
#[test]
fn with_error_feedback_on_the_other_side() {
    let Some(python) = python() else { return };
    let ps = Ps::start(2, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 2, LENGTH);
    let running = vec![
        start_python(python, &ps, 0, &inputs[0], &["--repeat", "3", "--key", "0x4FD0BFC1"]),
        start_real(&ps, 1, &inputs[1], &["--repeat", "3", "--error-feedback"]),
    ];
    all_equal(running, &inputs, 0.05);
}

#[test]
fn alone_over_two_shards_and_with_lanes_of_16_bits() {
    let Some(python) = python() else { return };
    let ps = Ps::start(2, &["--shards", "2", "--lane", "16", "--granularity", "200", "--fraction", "1/512"]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 2, LENGTH);
    let start = |(number, input): (usize, &PathBuf)| start_python(python, &ps, number, input, &[]);
    all_equal(inputs.iter().enumerate().map(start).collect(), &inputs, 0.025);
}

/// P44: of lanes of 8 and of 16 bits.
#[test]
fn with_packed_sums_both_have_the_same_mean() {
    let Some(python) = python() else { return };
    for (lane, table) in [("6", ["30", "1/32"]), ("9", ["200", "1/512"])] {
        let ps = Ps::start(2, &["--lane", lane, "--granularity", table[0], "--fraction", table[1]]);
        let dir = tempfile::tempdir().unwrap();
        let inputs = write_gradients(dir.path(), 2, LENGTH);
        let running =
            vec![start_python(python, &ps, 0, &inputs[0], &[]), start_real(&ps, 1, &inputs[1], &[])];
        all_equal(running, &inputs, 0.025);
    }
}

/// The session goes on (P24), and what was lost is sent again because somebody waits for it (P17, P20).
#[test]
fn a_killed_and_restarted_server_changes_no_bit() {
    let Some(python) = python() else { return };
    let mut ps = Ps::start(2, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 2, LENGTH);
    let flags = ["--repeat", "100"];
    let running =
        vec![start_python(python, &ps, 0, &inputs[0], &flags), start_real(&ps, 1, &inputs[1], &flags)];
    wait_for(&ps, "session formed", 1);
    for pause in [100, 300] {
        std::thread::sleep(Duration::from_millis(pause));
        ps.kill_and_restart();
    }
    all_equal(running, &inputs, 0.025);
    assert!(ps.log().contains("goes on after a restart"), "{}", ps.log());
}

/// Waits until the server has said something so often.
fn wait_for(ps: &Ps, said: &str, times: usize) {
    let started = Instant::now();
    while ps.log().matches(said).count() < times {
        assert!(started.elapsed() < thc_tests::HANG, "{said}: {}", ps.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The session cannot go on with other numbers (P24), and both say why.
#[test]
fn a_server_restarted_with_another_table_ends_the_session() {
    let Some(python) = python() else { return };
    let mut ps = Ps::start(2, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 2, LENGTH);
    let flags = ["--repeat", "100000"];
    let running = [start_python(python, &ps, 0, &inputs[0], &flags), start_real(&ps, 1, &inputs[1], &flags)];
    wait_for(&ps, "session formed", 1);
    std::thread::sleep(Duration::from_millis(300));
    ps.kill();
    let other = ["--granularity", "20", "--fraction", "1/32"];
    let _other = Ps::start_on(None, ps.addr, 2, &other);
    for end in running.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("granularity"), "{end:?}");
    }
}

#[test]
fn a_nan_fails_both_alike() {
    let Some(python) = python() else { return };
    let ps = Ps::start(2, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 2, LENGTH);
    let mut bytes = std::fs::read(&inputs[1]).unwrap();
    bytes[4 * 150_000..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&inputs[1], bytes).unwrap();
    let running = [start_python(python, &ps, 0, &inputs[0], &[]), start_real(&ps, 1, &inputs[1], &[])];
    for end in running.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("worker 1 has a NaN"), "{end:?}");
    }
}

#[test]
fn different_lengths_fail_both() {
    let Some(python) = python() else { return };
    let ps = Ps::start(2, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 2, LENGTH);
    let bytes = std::fs::read(&inputs[1]).unwrap();
    std::fs::write(&inputs[1], &bytes[..4 * (LENGTH - 1)]).unwrap();
    let running = [start_python(python, &ps, 0, &inputs[0], &[]), start_real(&ps, 1, &inputs[1], &[])];
    for end in running.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("200000") && end.last_error().contains("199999"), "{end:?}");
    }
}
