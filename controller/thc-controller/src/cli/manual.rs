//! Completions and manual pages, from the flags themselves.

use super::terminal::{Failure, print};
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;

const COMPLETIONS: &str = "\
Examples:
  bash, for this user:
    mkdir -p ~/.local/share/bash-completion/completions
    thc-controller completions bash >~/.local/share/bash-completion/completions/thc-controller

  zsh, in a folder of $fpath; fish:
    thc-controller completions zsh >~/.zfunc/_thc-controller
    thc-controller completions fish >~/.config/fish/completions/thc-controller.fish";

const MAN: &str = "\
Examples:
  Read the manual; or install it for all users, one page for each command:
    thc-controller man | man -l -
    thc-controller man --out /usr/local/share/man/man1";

/// Flags of `completions`.
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS)]
pub struct CompletionFlags {
    /// Shell to print completions for
    shell: Shell,
}

/// Flags of `man`.
#[derive(Args, Debug)]
#[command(after_help = MAN)]
pub struct ManFlags {
    /// Write thc-controller.1, thc-controller-job.1 and so on to this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Prints completions of `command`, the whole command line.
pub fn completions(flags: &CompletionFlags, command: &mut Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(flags.shell, command, "thc-controller", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Prints or writes manual pages of `command`, the whole command line.
pub fn man(flags: &ManFlags, command: Command) -> Result<(), Failure> {
    let Some(folder) = &flags.out else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text)?;
        return print(&String::from_utf8_lossy(&text));
    };
    let failed = |error: std::io::Error| Failure::error(format!("--out {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)
}
