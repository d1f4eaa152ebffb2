//! The help of the programs: `-h` shows the most used options, `--help` shows all.

use clap::{Arg, Command};

/// The widest line of any help.
pub const WIDTH: usize = 96;

/// Makes `-h` show only the options `short`, each with its first clause and its default, and no examples.
pub fn shorten(command: Command, short: &[&str]) -> Command {
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
    let (all, default) = text.split_at(text.rfind(" [default").unwrap_or(text.len()));
    let clause =
        [";", ". ", ", such"].iter().fold(all, |clause, end| clause.split(end).next().unwrap_or(clause));
    let help = format!("{clause}{default}");
    arg.help(help).long_help(text)
}

#[cfg(test)]
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
    }
}
