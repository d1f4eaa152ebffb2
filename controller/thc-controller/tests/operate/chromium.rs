//! A real browser without a window.

use std::path::PathBuf;
use std::process::{Command, Stdio};

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

/// The page's document after its scripts ran for so many milliseconds of their own time; `None`, and a line that says
/// so, without a browser.
pub fn document(url: &str, milliseconds: u32) -> Option<String> {
    let Some(program) = program() else {
        println!("not run: chromium not found (Debian: apt-get install chromium)");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["-k", "5", "120"])
        .arg(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--virtual-time-budget={milliseconds}"))
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg(url)
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("</html>"), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// What a reader of the document sees: without scripts, styles and tags.
pub fn text(document: &str) -> String {
    let mut text = String::new();
    let mut rest = document;
    while let Some(at) = rest.find('<') {
        text += &rest[..at];
        rest = &rest[at..];
        let end = ["script", "style"].iter().find_map(|tag| {
            let inside = rest.get(1..).is_some_and(|inside| inside.starts_with(tag));
            inside.then(|| rest.find(&format!("</{tag}>")))?
        });
        rest = &rest[end.unwrap_or(0)..];
        rest = rest.find('>').map_or("", |end| &rest[end + 1..]);
        text.push(' ');
    }
    (text + rest).split_whitespace().collect::<Vec<_>>().join(" ")
}
