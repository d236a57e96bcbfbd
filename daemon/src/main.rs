//! `deepumd`; see the library.

use clap::Parser;
use deepum_daemon::cli::{Cli, Task};
use deepum_daemon::{parent, worker};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = Cli::parse().task().and_then(|task| match task {
        Task::Worker(errand) => worker::main(&errand),
        Task::Serve(settings) => parent::main(settings),
        Task::Check(settings) => {
            print!("{}", settings.check()?);
            Ok(())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("deepumd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
