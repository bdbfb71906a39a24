//! What the resolver may look at outside the connection string: variables, files, the account.
//! A trait, so that tests need no process state. Knows nothing of keywords and connections.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The world as the resolver sees it.
pub trait Environment {
    /// An environment variable; an empty one is `Some("")`.
    fn var(&self, name: &str) -> Option<String>;

    /// A whole text file. Errors are those of the operating system.
    fn read_file(&self, path: &Path) -> io::Result<String>;

    /// The Unix mode of a file: permission bits, and the file type bits where the system has
    /// them. `None` if there is no such file.
    fn mode(&self, path: &Path) -> Option<u32>;

    /// True if the path exists, whatever it is; symbolic links are followed.
    fn exists(&self, path: &Path) -> bool;

    /// The operating system's name of the effective user.
    fn user_name(&self) -> Option<String>;

    /// The home directory.
    fn home(&self) -> Option<PathBuf>;

    /// A random number, the same whenever it is asked for.
    fn chance(&self) -> u64;
}

/// This process: its variables, its file system, its effective user.
///
/// Bytes that are not UTF-8 become replacement characters, so that a wrong letter is seen in the
/// server's answer and not mistaken for an absent value.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[cfg(unix)]
    fn mode(&self, path: &Path) -> Option<u32> {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).ok().map(|found| found.permissions().mode())
    }

    #[cfg(not(unix))]
    fn mode(&self, path: &Path) -> Option<u32> {
        path.exists().then_some(0o600)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn user_name(&self) -> Option<String> {
        account().map(|(name, _)| name).or_else(ask_id)
    }

    fn home(&self) -> Option<PathBuf> {
        match std::env::var_os("HOME") {
            Some(home) if !home.is_empty() => Some(PathBuf::from(home)),
            _ => account().map(|(_, home)| home),
        }
    }

    fn chance(&self) -> u64 {
        static DRAWN: OnceLock<u64> = OnceLock::new();
        *DRAWN.get_or_init(|| RandomState::new().hash_one(()))
    }
}

/// Name and home of the effective user from `/proc` and `/etc/passwd`; `None` where there is no
/// `/proc`, or when the account comes from a directory service.
fn account() -> Option<(String, PathBuf)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let passwd = fs::read("/etc/passwd").ok()?;
    account_of(effective_uid(&status)?, &String::from_utf8_lossy(&passwd))
}

/// The second number of the line `Uid:` is the effective one.
fn effective_uid(status: &str) -> Option<&str> {
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_ascii_whitespace().nth(1)
}

fn account_of(uid: &str, passwd: &str) -> Option<(String, PathBuf)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found = fields.nth(1)? == uid;
        let home = fields.nth(2)?;
        found.then(|| (name.to_owned(), PathBuf::from(home)))
    })
}

/// Asks POSIX `id`, which knows directory services and exists on every Unix.
fn ask_id() -> Option<String> {
    let answer = Command::new("id").arg("-un").output().ok()?;
    let name = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    (answer.status.success() && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t0\t1000\t1000\t1000\nGid:\t0\t0\t0\t0\n";
    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n+::::\nanna:x:1000:1000:Anna:/home/a:/b\n";

    #[test]
    fn the_effective_user_is_looked_up_not_the_real_one() {
        assert_eq!(effective_uid(STATUS), Some("1000"));
        assert_eq!(account_of("1000", PASSWD), Some(("anna".into(), "/home/a".into())));
    }

    #[test]
    fn an_account_that_is_not_in_the_file_is_absent() {
        assert_eq!(account_of("7", PASSWD), None);
    }

    #[test]
    fn this_process_has_a_user_name() {
        assert!(ProcessEnvironment.user_name().is_some_and(|name| !name.is_empty()));
    }

    #[test]
    fn an_absent_file_has_no_mode_and_does_not_exist() {
        let nowhere = Path::new("/nonexistent/pgpaces");
        assert_eq!(ProcessEnvironment.mode(nowhere), None);
        assert!(!ProcessEnvironment.exists(nowhere));
        assert!(ProcessEnvironment.read_file(nowhere).is_err());
    }
}
