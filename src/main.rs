//! The thin binary: one crypto provider, then the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything can open a connection. An error means that one is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    undersign::cli::run()
}
