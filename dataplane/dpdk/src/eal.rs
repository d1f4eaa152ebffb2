//! DPDK's environment abstraction layer: memory and drivers, once per process.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, thread};

use crate::error::{DpdkError, errno, text};

/// How DPDK is started. What is not here follows: memory is private to the process (`--in-memory`, or
/// `--no-shconf` without hugepages), there is no telemetry socket, and no core gets a thread of DPDK's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// Take memory from hugepages.
    pub hugepages: bool,
    /// MiB set aside, for all pools and rings of the process.
    pub memory: u32,
    /// PCI addresses of the devices that DPDK may touch; it leaves all others alone.
    pub pci: Vec<String>,
    /// Further arguments, which win over ours.
    pub arguments: Vec<String>,
}

/// Proof that DPDK runs.
#[derive(Debug)]
pub struct Eal(());

enum State {
    Untouched,
    Running(EalConfig),
    /// It cannot be tried again in this process.
    Failed(String, String),
}

static STATE: Mutex<State> = Mutex::new(State::Untouched);
static EAL: Eal = Eal(());

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Eal {
    /// Starts DPDK, or finds it running with the same settings; `memory` of the first call counts, and its
    /// PCI devices must include those of later ones.
    ///
    /// # Errors
    /// [`DpdkError::Hugepages`], [`DpdkError::Hidden`], [`DpdkError::Permission`], [`DpdkError::Eal`], [`DpdkError::Differs`],
    /// [`DpdkError::Text`].
    pub fn start(config: &EalConfig) -> Result<&'static Eal, DpdkError> {
        let mut state = state();
        match &*state {
            State::Running(running) => return running.serves(config).map(|()| &EAL),
            State::Failed(cause, arguments) => {
                return Err(DpdkError::Eal { cause: cause.clone(), arguments: arguments.clone() });
            }
            State::Untouched => {}
        }
        config.check_hugepages()?;
        let arguments = config.command_line();
        let mut words = Vec::new();
        for argument in &arguments {
            let word =
                CString::new(argument.as_str()).map_err(|_| DpdkError::Text { text: argument.clone() })?;
            words.push(word);
        }
        // rte_eal_init pins the thread that calls it, so a thread of its own calls it.
        let result = thread::scope(|scope| {
            let body = move || {
                // DPDK keeps pointers into its arguments, so they are never freed: once per process.
                let mut words: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
                let count = words.len() as i32;
                words.push(std::ptr::null_mut());
                let words = words.leak();
                // SAFETY: `words` is an array of `count` strings that end with zero, and a null behind them; all are
                // writable, leaked and used by nobody else. Nobody calls this a second time: see STATE.
                let started = unsafe { dpdk_sys::rte_eal_init(count, words.as_mut_ptr()) };
                if started < 0 { Err(errno()) } else { Ok(()) }
            };
            thread::Builder::new().name("thc-eal".to_owned()).spawn_scoped(scope, body).map(|t| t.join())
        });
        let failure = match result {
            Ok(Ok(Ok(()))) => {
                *state = State::Running(config.clone());
                return Ok(&EAL);
            }
            Ok(Ok(Err(libc::EACCES | libc::EPERM))) => return Err(DpdkError::Permission),
            Ok(Ok(Err(errno))) => text(errno),
            Ok(Err(_)) => "its start panicked".to_owned(),
            Err(cause) => cause.to_string(),
        };
        let line = arguments.join(" ");
        *state = State::Failed(failure.clone(), line.clone());
        Err(DpdkError::Eal { cause: failure, arguments: line })
    }

    /// DPDK's name and version.
    #[must_use]
    pub fn version() -> String {
        // SAFETY: returns a static string that ends with zero.
        let version = unsafe { std::ffi::CStr::from_ptr(dpdk_sys::rte_version()) };
        version.to_string_lossy().into_owned()
    }
}

impl EalConfig {
    fn serves(&self, other: &EalConfig) -> Result<(), DpdkError> {
        let differs = |what| Err(DpdkError::Differs { what });
        if self.hugepages != other.hugepages {
            return differs("hugepages");
        }
        if self.arguments != other.arguments {
            return differs("EAL arguments");
        }
        if !other.pci.iter().all(|address| self.pci.contains(address)) {
            return differs("PCI devices");
        }
        Ok(())
    }

    fn command_line(&self) -> Vec<String> {
        let mut line: Vec<String> =
            ["thc", "--no-telemetry", "--log-level=warning"].map(str::to_owned).into();
        // Memif has two false alarms: that it cannot share with secondary processes, which there are none, and every
        // try to reach a server that is not there yet, which `DpdkError::NoServer` says better.
        line.push("--log-level=pmd.net.memif:critical".to_owned());
        // Both leave no files behind; the first is not to be had without hugepages.
        line.push(if self.hugepages { "--in-memory" } else { "--no-shconf" }.to_owned());
        let given = |names: &[&str]| {
            let same = |argument: &String, name: &str| {
                argument
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !name.starts_with("--"))
            };
            self.arguments.iter().any(|argument| names.iter().any(|name| same(argument, name)))
        };
        // One logical core, and no thread for it but the one that starts DPDK: our threads register themselves.
        if !given(&["-l", "-c", "--lcores"]) {
            line.push(format!("--lcores=0@{}", first_core()));
        }
        if self.pci.is_empty() {
            line.push("--no-pci".to_owned());
        }
        for address in &self.pci {
            line.push(format!("--allow={address}"));
        }
        if !given(&["-m", "--socket-mem"]) {
            line.push(format!("-m{}", self.memory));
        }
        if !self.hugepages {
            line.push("--no-huge".to_owned());
        }
        line.extend(self.arguments.iter().cloned());
        line
    }

    /// DPDK's own message for this is hard to read.
    fn check_hugepages(&self) -> Result<(), DpdkError> {
        if !self.hugepages || self.arguments.iter().any(|argument| argument == "--no-huge") {
            return Ok(());
        }
        for file in ["/proc/meminfo", "/proc/mounts"] {
            if fs::File::open(file).is_err() {
                return Err(DpdkError::Hidden { file });
            }
        }
        let free = free_hugepages();
        if free < u64::from(self.memory) {
            return Err(DpdkError::Hugepages { needed: self.memory, free });
        }
        Ok(())
    }
}

/// MiB.
fn free_hugepages() -> u64 {
    let Ok(sizes) = fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    let mut kib = 0;
    for size in sizes.flatten() {
        let name = size.file_name();
        let Some(each) = name.to_str().and_then(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB")) else {
            continue;
        };
        let free = fs::read_to_string(size.path().join("free_hugepages")).unwrap_or_default();
        kib += each.parse::<u64>().unwrap_or(0) * free.trim().parse::<u64>().unwrap_or(0);
    }
    kib >> 10
}

/// The first core that this process may use.
fn first_core() -> usize {
    let mut set = crate::thread::no_cores();
    // SAFETY: `set` is a cpu_set_t of the size given, which the kernel fills in.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0;
    // SAFETY: `core` is below the number of bits of `set`.
    let may = |core: usize| unsafe { libc::CPU_ISSET(core, &set) };
    if failed { 0 } else { (0..libc::CPU_SETSIZE as usize).find(|&core| may(core)).unwrap_or(0) }
}
