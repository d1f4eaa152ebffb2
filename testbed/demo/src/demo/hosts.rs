//! Commands on the hosts of a network of namespaces.

use std::path::Path;
use std::process::Command;

use thc_netns::Host;

/// Makes a command run on a host, with the same additions to its environment.
pub fn wrap(host: &Host, command: &Command) -> Command {
    let mut there = host.command(Path::new(command.get_program()));
    there.args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            there.env(name, value);
        }
    }
    there
}
