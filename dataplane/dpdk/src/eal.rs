//! DPDK's environment abstraction layer: the memory and drivers of a process.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, thread};

use crate::error::{DpdkError, errno, text};

/// The settings with which DPDK starts. The other settings are fixed: memory is private to the process
/// (`--in-memory`, or `--no-shconf` without hugepages), DPDK opens no telemetry socket, and starts no threads on cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// True if memory comes from hugepages.
    pub hugepages: bool,
    /// Memory for all pools and rings of the process, in MiB.
    pub memory: u32,
    /// PCI addresses of the devices that DPDK may use. It leaves all other devices alone.
    pub pci: Vec<String>,
    /// Further arguments, which take precedence over the ones that this crate gives.
    pub arguments: Vec<String>,
}

/// A token that proves that DPDK runs in this process.
#[derive(Debug)]
pub struct Eal(());

enum State {
    Untouched,
    Running(EalConfig),
    /// The start failed, and DPDK allows no second attempt in a process.
    Failed(String, String),
}

static STATE: Mutex<State> = Mutex::new(State::Untouched);
static EAL: Eal = Eal(());

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Eal {
    /// Starts DPDK, unless it runs already with the same settings. The first call's `memory` holds for all later
    /// calls, and its PCI devices must include theirs.
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
        // rte_eal_init pins the calling thread to a core, so a separate thread calls it.
        let result = thread::scope(|scope| {
            let body = move || {
                // DPDK keeps pointers to its arguments, so they are never freed. That happens once per process.
                let mut words: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
                let count = words.len() as i32;
                words.push(std::ptr::null_mut());
                let words = words.leak();
                // SAFETY: `words` is an array of `count` strings that end with zero, followed by a null pointer. All
                // strings are writable, leaked, and used by nothing else. STATE keeps this from running a second time.
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
    pub fn version() -> String {
        // SAFETY: the function returns a static string that ends with zero.
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
        // Memif logs two errors that are none: that it cannot share memory with secondary processes, of which there are
        // none, and each attempt to reach a server that has not started yet, which `DpdkError::NoServer` explains better.
        line.push("--log-level=pmd.net.memif:critical".to_owned());
        // Neither option leaves files behind. The first one needs hugepages.
        line.push(if self.hugepages { "--in-memory" } else { "--no-shconf" }.to_owned());
        let given = |names: &[&str]| {
            let same = |argument: &String, name: &str| {
                argument
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !name.starts_with("--"))
            };
            self.arguments.iter().any(|argument| names.iter().any(|name| same(argument, name)))
        };
        // One logical core, which the thread that starts DPDK has. All other threads register themselves.
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

    /// Checks for free hugepages, since DPDK's own message is hard to understand.
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

/// The first core on which this process may run.
fn first_core() -> usize {
    let mut set = crate::thread::no_cores();
    // SAFETY: `set` is a cpu_set_t of the given size, which the kernel fills in.
    let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0;
    // SAFETY: `core` is below the number of bits of `set`.
    let may = |core: usize| unsafe { libc::CPU_ISSET(core, &set) };
    if failed { 0 } else { (0..libc::CPU_SETSIZE as usize).find(|&core| may(core)).unwrap_or(0) }
}
