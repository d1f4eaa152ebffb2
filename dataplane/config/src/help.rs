//! The help of the programs: `-h` shows the most used options, `--help` shows all; completions and the manual page.

use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;
use std::io::Write;

/// The widest line of any help.
pub const WIDTH: usize = 96;

/// Reads the command line. `-h` shows the options `short`. Ends the process if completions or the manual page were asked for, and
/// printed.
///
/// # Errors
/// As [`Command::try_get_matches`].
pub fn read(command: Command, short: &[&str]) -> Result<ArgMatches, clap::Error> {
    let generate = Arg::new("generate")
        .long("generate")
        .value_name("SHELL|man")
        .value_parser(["bash", "zsh", "fish", "man"])
        .exclusive(true)
        .help("Print completions for a shell, or the manual page");
    // A command without arguments still shows its help where it needs a subcommand.
    let mut command = shorten(command.arg(generate), short).subcommand_required(false);
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(what) = matches.get_one::<String>("generate") {
        let text = generated(command, what)?;
        // A reader that has gone, such as `head`, is no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        std::process::exit(0);
    }
    Ok(matches)
}

fn generated(mut command: Command, what: &str) -> Result<String, clap::Error> {
    let mut text = Vec::new();
    match what.parse::<Shell>() {
        Ok(shell) => {
            let name = command.get_name().to_owned();
            clap_complete::generate(shell, &mut command, name, &mut text);
        }
        Err(_) => clap_mangen::Man::new(command).render(&mut text)?,
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Makes `-h` show only the options `short`, each with its first clause and its default, and no examples.
fn shorten(command: Command, short: &[&str]) -> Command {
    let examples = command.get_after_help().cloned().unwrap_or_default();
    command
        .mut_args(|arg| shorten_option(arg, short))
        .after_help("--help shows all options, and examples.")
        .after_long_help(examples)
        .max_term_width(WIDTH)
}

fn shorten_option(arg: Arg, short: &[&str]) -> Arg {
    if !short.contains(&arg.get_id().as_str()) {
        return arg.hide_short_help(true);
    }
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let long = arg.get_long_help().map_or_else(|| text.clone(), ToString::to_string);
    let (all, default) = text.split_at(text.rfind(" [default").unwrap_or(text.len()));
    let first = |clause, end| str::split(clause, end).next().unwrap_or(clause);
    let help = [";", ". ", ", such", ": "].iter().fold(all, |clause, end| first(clause, *end));
    arg.help(format!("{help}{default}")).long_help(long)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn short_help_has_one_line_for_each_option() {
        let option = |name: &'static str| Arg::new(name).long(name);
        let command = Command::new("p")
            .arg(option("used").help("Address, such as this; or another. More [default: none]"))
            .arg(option("rare").help("Rare"))
            .after_help("Examples: p --rare");
        let mut command = shorten(command, &["used"]);
        let short = command.render_help().to_string();
        assert!(short.contains("Address [default: none]\n") && !short.contains("rare"), "{short}");
        let long = command.render_long_help().to_string();
        assert!(long.contains("or another. More") && long.contains("Examples: p --rare"), "{long}");
        for what in ["bash", "zsh", "fish", "man"] {
            let text = generated(command.clone(), what).unwrap();
            assert!(text.contains("rare") && text.contains("used"), "{what}: {text}");
        }
    }
}
