//! `undersign schema`: the table of keys, for editors and for people.

use crate::config::reference;

use super::{Done, Outcome};

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to print
    #[arg(value_enum)]
    of: Of,
}

/// What can be printed.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Of {
    /// JSON Schema of undersign.toml
    Config,
    /// JSON Schema of a team's policy file
    Policy,
    /// Every key of both, as it stands in deploy/REFERENCE.md
    Markdown,
}

#[expect(clippy::unnecessary_wraps, reason = "as every command")]
pub(super) fn run(args: &Args) -> Outcome {
    match args.of {
        Of::Config => println!("{:#}", reference::json_schema(reference::CONFIG)),
        Of::Policy => println!("{:#}", reference::json_schema(reference::POLICY)),
        Of::Markdown => print!("{}", reference::markdown()),
    }
    Ok(Done)
}
