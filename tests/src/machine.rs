//! A virtual machine with a network card on its PCI bus (QEMU), for drivers that take a device of their own. Everything in
//! it is emulated, so it needs no rights and runs in any machine, a container, or another virtual machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use crate::Host;

/// The emulator, and Debian's package of it.
const QEMU: &str = "qemu-system-x86_64";
/// Where the card is on the machine's bus.
pub const CARD: &str = "0000:00:05.0";
/// Seconds that a machine may run.
const PATIENCE: &str = "900";

/// What a machine boots.
#[derive(Debug)]
pub struct Image {
    kernel: PathBuf,
    modules: PathBuf,
    files: BTreeMap<String, Entry>,
}

#[derive(Debug)]
enum Entry {
    Folder,
    File(Vec<u8>),
    Link(String),
}

impl Image {
    /// The kernel that `make test` unpacked, and no files yet.
    ///
    /// # Errors
    /// What is missing, for `not run: …`.
    pub fn new() -> Result<Image, String> {
        let found = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
        found.map_err(|error| format!("{QEMU}: {error} (Debian: qemu-system-x86)"))?;
        // Tests lie in target/PROFILE/deps.
        let test = std::env::current_exe().map_err(|error| error.to_string())?;
        let folder = test.ancestors().nth(3).ok_or("no target folder")?.join("guest-kernel");
        let only = |folder: PathBuf, prefix: &str| {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut paths = entries.map(|entry| entry.path());
            let named = |path: &PathBuf| path.to_string_lossy().contains(prefix);
            paths
                .find(named)
                .ok_or_else(|| format!("no {prefix} in {}; run `make guest-kernel`", folder.display()))
        };
        let kernel = only(folder.join("boot"), "vmlinuz")?;
        let modules = only(folder.join("lib/modules"), "6.")?.join("kernel");
        let folders = [".", "bin", "dev", "huge", "proc", "run", "sys", "tmp", "var"];
        let folders = folders.map(|name| (name.to_owned(), Entry::Folder));
        let mut image = Image { kernel, modules, files: BTreeMap::from(folders) };
        image.files.insert("var/run".to_owned(), Entry::Link("/run".to_owned()));
        for program in ["/bin/sh", "/bin/mount", "/bin/sleep", "/sbin/insmod"] {
            image.program(Path::new(program))?;
        }
        Ok(image)
    }

    /// Adds a program, as `/bin/NAME`, and the libraries that it names.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn program(&mut self, program: &Path) -> Result<(), String> {
        let name = program.file_name().and_then(|name| name.to_str()).ok_or("a program has no name")?;
        // Without what is only for debuggers, which is most of it.
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let short = dir.path().join(name);
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg("-o").arg(&short).arg(program).stderr(Stdio::null());
        let stripped = strip.status().is_ok_and(|status| status.success());
        let bytes = read(if stripped { &short } else { program })?;
        self.files.insert(format!("bin/{name}"), Entry::File(bytes));
        self.libraries_of(program)
    }

    /// Adds a library at its own place, and the libraries that it names.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn library(&mut self, library: &Path) -> Result<(), String> {
        let real = fs::canonicalize(library).map_err(|error| format!("{}: {error}", library.display()))?;
        let place = self.place(&real);
        let known = self.files.insert(place, Entry::File(read(&real)?)).is_some();
        // Under all its names it must stay one file: the loader goes by that.
        if real != library {
            let place = self.place(library);
            self.files.insert(place, Entry::Link(real.to_string_lossy().into_owned()));
        }
        if known { Ok(()) } else { self.libraries_of(&real) }
    }

    /// Adds a module of the kernel as `/NAME.ko`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn module(&mut self, module: &str) -> Result<(), String> {
        let path = self.modules.join(format!("{module}.ko"));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.files.insert(name.unwrap_or_default(), Entry::File(read(&path)?));
        Ok(())
    }

    fn libraries_of(&mut self, path: &Path) -> Result<(), String> {
        let output = Command::new("ldd").arg(path).output().map_err(|error| format!("ldd: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let found = words.iter().find(|word| word.starts_with('/')).map(Path::new);
            if let Some(library) = found {
                let place = self.place(library);
                if !self.files.contains_key(&place) {
                    self.library(library)?;
                }
            }
        }
        Ok(())
    }

    /// The name of a file in the archive. Its folders are made, with /lib as folders of its own wherever it is a link here.
    fn place(&mut self, path: &Path) -> String {
        let name = path.to_string_lossy().trim_start_matches('/').to_owned();
        for (end, _) in name.match_indices('/') {
            self.files.insert(name[..end].to_owned(), Entry::Folder);
        }
        name
    }

    /// The archive of all files that the kernel unpacks (cpio, "newc").
    fn archive(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |number: usize, name: &str, mode: u32, data: &[u8]| {
            let head =
                [number as u32, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
            all.extend(b"070701");
            head.iter().for_each(|field| all.extend(format!("{field:08x}").bytes()));
            all.extend(name.bytes());
            all.push(0);
            all.resize(all.len().next_multiple_of(4), 0);
            all.extend(data);
            all.resize(all.len().next_multiple_of(4), 0);
        };
        for (number, (name, entry)) in (1..).zip(&self.files) {
            match entry {
                Entry::Folder => add(number, name, 0o040_755, &[]),
                Entry::File(bytes) => add(number, name, 0o100_755, bytes),
                Entry::Link(target) => add(number, name, 0o120_777, target.as_bytes()),
            }
        }
        add(0, "TRAILER!!!", 0, &[]);
        all
    }

    /// Starts a machine with a shell script as its first program, on a host, with a virtio card at [`CARD`] whose other
    /// end is the host's interface `tap`, with so many queues. The card sorts packets by their hash, if asked to.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn boot(mut self, script: &str, host: &Host, tap: &str, queues: u8) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\nexport PATH=/bin NO_COLOR=1\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run\n\
             mount -t devtmpfs dev /dev; mount -t hugetlbfs huge /huge\n{script}\n\
             echo o >/proc/sysrq-trigger; sleep 60\n"
        );
        self.files.insert("init".to_owned(), Entry::File(script.into_bytes()));
        let archive = dir.path().join("archive");
        fs::write(&archive, self.archive()).unwrap();
        // `timeout` ends it even if this process is killed.
        let mut command = host.command("timeout".as_ref());
        command.args(["-k", "5", PATIENCE, QEMU, "-nodefaults", "-no-user-config", "-display", "none"]);
        command.args([
            "-serial",
            "stdio",
            "-no-reboot",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "1G",
        ]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&archive);
        command.args(["-append", "console=ttyS0 quiet panic=-1"]);
        command
            .args(["-netdev", &format!("tap,id=net,ifname={tap},queues={queues},script=no,downscript=no")]);
        let vectors = 2 * queues + 2;
        let card = "virtio-net-pci,netdev=net,addr=5,mq=on,rss=on,disable-legacy=on,rx_queue_size=1024";
        command.args(["-device", &format!("{card},vectors={vectors},mac=02:00:00:00:00:01")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let console = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        });
        Machine { child, console, lines, said: String::new(), _dir: dir }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A running machine, ended when dropped.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    console: ChildStdin,
    lines: Receiver<String>,
    said: String,
    _dir: tempfile::TempDir,
}

impl Machine {
    /// Waits for a line on its console that begins so, [`HANG`](crate::HANG) at most. All that it wrote since the last.
    ///
    /// # Panics
    /// If it does not come.
    pub fn await_line(&mut self, begins: &str) -> String {
        let end = Instant::now() + crate::HANG;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("the machine has not written {begins:?}: {}", self.said)
            };
            self.said += &line;
            self.said.push('\n');
            if line.starts_with(begins) {
                return std::mem::take(&mut self.said);
            }
        }
    }

    /// Enters an empty line at its console.
    ///
    /// # Panics
    /// If it is gone.
    pub fn enter(&mut self) {
        self.console.write_all(b"\n").unwrap();
        self.console.flush().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // `timeout` takes the emulator along when it is told to end; killed, it would leave it.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
