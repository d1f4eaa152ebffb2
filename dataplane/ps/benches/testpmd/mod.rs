//! dpdk-testpmd, which forwards packets on a ring of its own.

use super::{DATA, Fallible, HEADERS, TESTPMD_MIB, TURN};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use thc_dpdk::BURST;

/// CPU time of each thread of a process so far, in ns, by thread.
fn cpu_times(process: u32) -> Fallible<BTreeMap<String, u64>> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        let text = fs::read_to_string(task.path().join("schedstat"))?;
        let time = text.split_whitespace().next().ok_or("no time in schedstat")?.parse()?;
        times.insert(task.file_name().to_string_lossy().into_owned(), time);
    }
    Ok(times)
}

/// A running testpmd, which is killed if the benchmark fails.
struct Testpmd {
    child: Child,
    said: Vec<u8>,
}

impl Testpmd {
    fn start(hugepages: bool) -> Fallible<Testpmd> {
        let last = thread::available_parallelism()?.get() - 1;
        let child = Command::new("dpdk-testpmd")
            .arg(if hugepages { "--in-memory" } else { "--no-huge" })
            .args(["--no-shconf", "--no-telemetry", "--no-pci"])
            .args([&format!("-m{TESTPMD_MIB}"), "--vdev=net_ring0"])
            // A thread that commands and one that forwards, both wherever there is time.
            .args(["--lcores", &format!("0@(0-{last}),1@(0-{last})")])
            .args(["--", "-i", "--forward-mode=macswap", "--burst=64"])
            .args(["--total-num-mbufs=8192"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut testpmd = Testpmd { child, said: Vec::new() };
        testpmd.prompt()?;
        Ok(testpmd)
    }

    /// Gives a command and waits until it is done.
    fn command(&mut self, command: &str) -> Fallible<()> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        writeln!(input, "{command}")?;
        input.flush()?;
        self.prompt()
    }

    /// Reads on to the next prompt.
    fn prompt(&mut self) -> Fallible<()> {
        let output = self.child.stdout.as_mut().ok_or("no output")?;
        let (from, mut byte) = (self.said.len(), [0]);
        while !self.said[from..].ends_with(b"testpmd> ") {
            if output.read(&mut byte)? == 0 {
                return Err(format!("testpmd ended: {}", String::from_utf8_lossy(&self.said)).into());
            }
            self.said.push(byte[0]);
        }
        Ok(())
    }

    /// Ends it, and returns its whole output. Its counts come only then, since it buffers them.
    fn end(mut self) -> Fallible<String> {
        if let Some(mut input) = self.child.stdin.take() {
            writeln!(input, "quit")?;
        }
        if let Some(output) = &mut self.child.stdout {
            output.read_to_end(&mut self.said)?;
        }
        Ok(String::from_utf8_lossy(&self.said).into_owned())
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time per packet, in nanoseconds, of testpmd's thread that forwards. The thread never sleeps, so time in which another
/// process has its core does not count.
pub fn nanoseconds_per_packet(hugepages: bool, seconds: f64) -> Fallible<f64> {
    let mut testpmd = Testpmd::start(hugepages)?;
    let before = cpu_times(testpmd.child.id())?;
    // TURN packets go round, of the size of DATA.
    testpmd.command(&format!("set txpkts {}", HEADERS + DATA))?;
    testpmd.command(&format!("start tx_first {}", TURN / BURST))?;
    thread::sleep(Duration::from_secs_f64(seconds));
    testpmd.command("stop")?;
    let after = cpu_times(testpmd.child.id())?;
    let text = testpmd.end()?;
    let spent = after.iter().map(|(thread, time)| time - before.get(thread).unwrap_or(&0)).max().unwrap_or(0);
    let forwarded = text.rsplit("TX-packets:").next().and_then(|rest| rest.split_whitespace().next());
    match forwarded.and_then(|number| number.parse::<u64>().ok()) {
        Some(packets) if packets > 1000 && spent > 0 => Ok(spent as f64 / packets as f64),
        _ => Err(format!("testpmd does not tell what it has forwarded:\n{text}").into()),
    }
}
