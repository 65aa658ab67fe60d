//! Finding the server programs, and telling their version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ClusterEnv, ClusterError};

/// A directory that holds `initdb`, `pg_ctl` and `postgres`, and their major version.
#[derive(Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
    major: u32,
}

impl Binaries {
    /// The first directory with all three programs, in the order of [`candidates`].
    pub(super) fn find(env: &ClusterEnv) -> Result<Self, ClusterError> {
        let directory = candidates(env).into_iter().find(|d| complete(d)).ok_or(ClusterError::NoBinaries)?;
        let program = directory.join("postgres");
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .map_err(|source| ClusterError::Run { program: program.clone(), source })?;
        let major = major_of(&String::from_utf8_lossy(&output.stdout)).ok_or(ClusterError::NoBinaries)?;
        if major < 14 {
            return Err(ClusterError::TooOld { found: major, bin: directory });
        }
        Ok(Self { directory, major })
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Refuses a data directory of another major version: its files can't be read, and nothing upgrades by itself.
    pub(super) fn check_major(&self, data: &Path, made_by: &str) -> Result<(), ClusterError> {
        if made_by == self.major.to_string() {
            return Ok(());
        }
        Err(ClusterError::OtherMajor {
            data: data.to_owned(),
            made_by: made_by.to_owned(),
            found: self.major,
            bin: self.directory.clone(),
        })
    }
}

/// Where to look, in order: what the user names, what the user's shell finds, what the packages install.
fn candidates(env: &ClusterEnv) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = env.pg_bin.iter().cloned().collect();
    let on_path = env.path.iter().flat_map(std::env::split_paths);
    // Debian links pg_ctl-like tools elsewhere; the programs lie side by side only where the link points to.
    all.extend(on_path.filter_map(|d| Some(fs::canonicalize(d.join("pg_ctl")).ok()?.parent()?.to_owned())));
    all.extend(versions(Path::new("/usr/lib/postgresql"), ""));
    all.extend(versions(Path::new("/opt/homebrew/opt"), "postgresql@"));
    all.extend(versions(Path::new("/usr/local/opt"), "postgresql@"));
    all.extend(versions(Path::new("/Applications/Postgres.app/Contents/Versions"), ""));
    all
}

/// The `bin` of each `PREFIX<number>` in a directory, newest first, compared as numbers (`9` before `10` otherwise).
fn versions(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, path)| path).collect()
}

fn complete(directory: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"].iter().all(|name| directory.join(name).is_file())
}

/// The `15` of `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`; also of `18beta1` and `19devel`.
fn major_of(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL) ")?.1;
    let digits = number.find(|c: char| !c.is_ascii_digit()).map_or(number, |end| &number[..end]);
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 19devel\n"), Some(19));
        assert_eq!(major_of("something else 15"), None);
    }

    #[test]
    fn newest_first_by_number() {
        let root = std::env::temp_dir().join(format!("undersign-versions-{}", std::process::id()));
        for name in ["9", "10", "15", "common"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let found: Vec<_> =
            versions(&root, "").iter().map(|p| p.strip_prefix(&root).unwrap().to_owned()).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [Path::new("15/bin"), Path::new("10/bin"), Path::new("9/bin")]);
    }
}
