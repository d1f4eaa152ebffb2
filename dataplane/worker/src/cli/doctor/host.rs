//! The host as `/proc`, `/sys` and `/dev` show it, below a root that tests replace.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the host's files are.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

/// Whether a device file may be read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// There is none.
    Missing,
    /// This process may not.
    Denied,
    /// It may, or somebody else is using it.
    Granted,
}

impl Host {
    /// This host, or one whose files were copied to a folder.
    pub fn new(root: Option<&Path>) -> Host {
        Host { root: root.unwrap_or(Path::new("/")).to_owned() }
    }

    fn resolve(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without blanks around it.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.resolve(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A file that is one number.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.parse().ok()
    }

    /// Names in a folder, sorted; none if there is not a folder.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.resolve(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn exists(&self, path: &str) -> bool {
        self.resolve(path).exists()
    }

    /// The last part of what a link points to, as sysfs names drivers and groups.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.resolve(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    pub fn access(&self, path: &str) -> Access {
        match fs::OpenOptions::new().read(true).write(true).open(self.resolve(path)) {
            Ok(_) => Access::Granted,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Access::Missing,
                ErrorKind::PermissionDenied => Access::Denied,
                _ => Access::Granted,
            },
        }
    }

    /// The value of a line `key: value` of a file.
    pub fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let value = text.lines().find_map(|line| line.split_once(':').filter(|(k, _)| k.trim() == key));
        value.map(|(_, value)| value.trim().to_owned())
    }

    /// Cores that this process may run on.
    pub fn own_cores(&self) -> BTreeSet<u32> {
        self.field("/proc/self/status", "Cpus_allowed_list").map(|text| list(&text)).unwrap_or_default()
    }

    /// Whether this process has a capability, by its number in linux/capability.h.
    pub fn capable(&self, capability: u32) -> bool {
        let mask = self.field("/proc/self/status", "CapEff");
        mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok())
            .is_some_and(|mask| mask >> capability & 1 == 1)
    }

    /// The NUMA node that a file names; `None` if the machine has one or the device none.
    pub fn node(&self, path: &str) -> Option<u32> {
        self.number(path).and_then(|node| u32::try_from(node).ok())
    }

    /// Numbers of the NUMA nodes.
    pub fn nodes(&self) -> Vec<u32> {
        let names = self.names("/sys/devices/system/node");
        let mut nodes: Vec<u32> = names.iter().filter_map(|n| n.strip_prefix("node")?.parse().ok()).collect();
        nodes.sort_unstable();
        nodes
    }
}

/// Numbers written like `0-3,8`.
pub fn list(text: &str) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// The same, the other way round.
pub fn format_list(numbers: &BTreeSet<u32>) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_and_written() {
        for text in ["", "0", "0-3,8", "1,3,5-6"] {
            assert_eq!(format_list(&list(text)), text);
        }
        assert_eq!(list("0-2\n").len(), 3);
    }
}
