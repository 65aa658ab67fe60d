//! `undersign serve` as a process of its own, on a world's files and database.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::World;

pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub agents: SocketAddr,
    pub callbacks: SocketAddr,
    pub admin: SocketAddr,
}

impl Process {
    /// Starts the binary, by way of another program if one is named; what it logs is in the world's file `stderr`.
    pub fn start(world: &World, by_way_of: &[&str]) -> Self {
        Self::launch(world, by_way_of, "error")
    }

    /// Starts the binary with another level of logging.
    pub fn start_logging(world: &World, level: &str) -> Self {
        Self::launch(world, &[], level)
    }

    /// What it printed to standard output besides the addresses, once it has ended.
    pub fn printed(&mut self) -> String {
        self.lines.by_ref().map(|line| line.unwrap() + "\n").collect()
    }

    fn launch(world: &World, by_way_of: &[&str], level: &str) -> Self {
        let config = world.config_path();
        let binary = OsStr::new(env!("CARGO_BIN_EXE_undersign"));
        let mut words: Vec<&OsStr> = by_way_of.iter().map(OsStr::new).collect();
        words.extend([binary, OsStr::new("serve"), OsStr::new("--config"), config.as_os_str()]);
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .envs(world.environment())
            .env("RUST_LOG", level)
            .stdout(Stdio::piped())
            .stderr(Stdio::from(std::fs::File::create(world.path("stderr")).unwrap()))
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = || -> SocketAddr {
            let line = lines.next().unwrap_or_else(|| panic!("{}", world.read("stderr"))).unwrap();
            let url = line.split_whitespace().nth(1).unwrap();
            url.trim_start_matches("http://").split('/').next().unwrap().parse().unwrap()
        };
        let (agents, callbacks, admin) = (address(), address(), address());
        Self { child, lines, agents, callbacks, admin }
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; the exit code, none after a signal.
    pub async fn ended(&mut self) -> Option<i32> {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The most memory that it has held so far, in MiB.
    pub fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
