//! Whose the cluster is and where it lies: account, state directory, lock, socket directory.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{ClusterEnv, ClusterError};

/// A socket's whole path may have 107 bytes on Linux and 103 on macOS; `/.s.PGSQL.5432` takes 15 of them.
const LONGEST_SOCKET_DIRECTORY: usize = 87;

/// The account that the server runs as when we are root.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// None unless we are root: Postgres refuses to run as root, `initdb` included.
    pub(super) fn for_server() -> Result<Option<Self>, ClusterError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = Path::new("/etc/passwd");
        let text = fs::read_to_string(passwd).map_err(ClusterError::io("read", passwd))?;
        let found = ["postgres", "_postgres", "nobody"].iter().find_map(|name| Self::in_passwd(&text, name));
        found.map(Some).ok_or(ClusterError::NoAccount)
    }

    fn in_passwd(text: &str, name: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            Some(Self { name: name.to_owned(), uid, gid })
        })
    }
}

/// Where the durable cluster lives.
pub(super) fn state_directory(env: &ClusterEnv, account: Option<&Account>) -> Result<PathBuf, ClusterError> {
    if let Some(state) = &env.state {
        return std::path::absolute(state).map_err(ClusterError::io("find", state));
    }
    if account.is_some() {
        return Ok(PathBuf::from("/var/lib/undersign"));
    }
    let base = env.xdg_state_home.clone().or_else(|| Some(env.home.as_ref()?.join(".local/state")));
    Ok(base.ok_or(ClusterError::NoState)?.join("undersign"))
}

/// Makes the directory with mode 0700 for the server's account, or checks that it is so.
pub(super) fn own_directory(directory: &Path, account: Option<&Account>) -> Result<(), ClusterError> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).map_err(ClusterError::io("create", parent))?;
    }
    let wanted = account.map_or_else(|| rustix::process::geteuid().as_raw(), |a| a.uid);
    let created = match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(ClusterError::io("create", directory)(error)),
    };
    // Of the link itself, not of what it points to: in a shared directory a link could be another user's.
    let found = fs::symlink_metadata(directory).map_err(ClusterError::io("look at", directory))?;
    if let Some(account) = account {
        let empty = || fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none());
        if created || (found.uid() == 0 && found.is_dir() && empty()) {
            std::os::unix::fs::chown(directory, Some(account.uid), Some(account.gid))
                .map_err(ClusterError::io("change the owner of", directory))?;
        }
        reachable(directory, account)?;
    }
    let found = fs::symlink_metadata(directory).map_err(ClusterError::io("look at", directory))?;
    let mode = found.mode() & 0o7777;
    if !found.is_dir() || found.uid() != wanted || mode & 0o077 != 0 {
        return Err(ClusterError::NotOurs {
            directory: directory.to_owned(),
            wanted,
            found: found.uid(),
            mode,
        });
    }
    Ok(())
}

/// Every directory above must let the account through: `/root`, say, does not.
fn reachable(directory: &Path, account: &Account) -> Result<(), ClusterError> {
    for above in directory.ancestors().skip(1) {
        let Ok(found) = fs::metadata(above) else { continue };
        let bit = if found.uid() == account.uid {
            0o100
        } else if found.gid() == account.gid {
            0o010
        } else {
            0o001
        };
        if found.mode() & bit == 0 {
            return Err(ClusterError::Unreachable {
                directory: directory.to_owned(),
                blocked: above.to_owned(),
                account: account.name.clone(),
            });
        }
    }
    Ok(())
}

/// Takes the directory for this process, until the file is closed.
pub(super) fn lock(directory: &Path) -> Result<File, ClusterError> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(ClusterError::io("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(ClusterError::InUse(directory.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(ClusterError::io("lock", &path)(error)),
    }
}

/// The directory itself, or a short one of our own where its path is too long for a socket or holds a character that
/// the server's option, the shell behind `pg_ctl` or a URL would take for something else.
pub(super) fn socket_directory(
    directory: &Path,
    temp_dir: &Path,
    account: Option<&Account>,
) -> Result<PathBuf, ClusterError> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-".contains(b);
    let bytes = directory.as_os_str().as_encoded_bytes();
    if bytes.len() <= LONGEST_SOCKET_DIRECTORY && bytes.iter().all(plain) {
        return Ok(directory.to_owned());
    }
    let short = temp_dir.join(format!("undersign-{:016x}", fnv1a(bytes)));
    own_directory(&short, account)?;
    Ok(short)
}

/// FNV-1a: the same name for the same directory with every build, which the standard hasher does not promise.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_passwd() {
        let text = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/x\npostgres:x:101:102:,,,:/var:/bin/sh\n";
        let account = Account::in_passwd(text, "postgres").unwrap();
        assert_eq!((account.uid, account.gid), (101, 102));
        assert!(Account::in_passwd(text, "_postgres").is_none());
    }

    #[test]
    fn a_long_or_odd_path_gets_a_short_socket_directory() {
        let plain = Path::new("/var/lib/undersign");
        assert_eq!(socket_directory(plain, Path::new("/tmp"), None).unwrap(), plain);
        let temp = std::env::temp_dir();
        for odd in [format!("/x/{}", "y".repeat(100)), "/home/it's me/state".to_owned()] {
            let found = socket_directory(Path::new(&odd), &temp, None).unwrap();
            assert_eq!(found, socket_directory(Path::new(&odd), &temp, None).unwrap());
            assert!(found.starts_with(&temp));
            fs::remove_dir(&found).unwrap();
        }
    }

    #[test]
    fn a_second_lock_is_refused_and_names_the_directory() {
        let directory = std::env::temp_dir().join(format!("undersign-lock-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let first = lock(&directory).unwrap();
        let second = lock(&directory).unwrap_err().to_string();
        assert_eq!(second, format!("another undersign uses {}", directory.display()));
        drop(first);
        lock(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("undersign-open-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = own_directory(&directory, None).unwrap_err();
        fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(refused, ClusterError::NotOurs { mode: 0o755, .. }), "{refused}");
    }
}
