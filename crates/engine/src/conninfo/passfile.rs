//! The password file: `~/.pgpass` with lines `host:port:database:user:password`. Knows nothing
//! of connection strings; `Lookup` says whom to look up.

use std::path::Path;

use super::environment::Environment;
use super::invalid;
use crate::error::Error;

const TYPE_BITS: u32 = 0o170_000;
const PLAIN_FILE: u32 = 0o100_000;
const GROUP_AND_OTHERS: u32 = 0o077;

/// Whom a password is wanted for, each as text.
pub(super) struct Lookup<'a> {
    pub(super) host: &'a str,
    pub(super) port: &'a str,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The lines of a password file. It has no `Debug`: its content is secret.
#[derive(Clone, Default)]
pub(super) struct PasswordFile(String);

impl PasswordFile {
    /// Reads the file; one that is absent has no lines. One that is no plain file, that others
    /// may read, or that we cannot read has none either, and says so in `warnings`.
    pub(super) fn read(
        path: &Path,
        environment: &dyn Environment,
        warnings: &mut Vec<Error>,
    ) -> Self {
        let Some(mode) = environment.mode(path) else {
            return Self::default();
        };
        let ignored = |name| invalid(name).with("path", path.display().to_string());
        let kind = mode & TYPE_BITS;
        if kind != 0 && kind != PLAIN_FILE {
            warnings.push(ignored("password-file-not-regular"));
        } else if mode & GROUP_AND_OTHERS != 0 {
            let mode = format!("{:04o}", mode & 0o7777);
            warnings.push(ignored("password-file-open-to-others").with("mode", mode));
        } else {
            match environment.read_file(path) {
                Ok(text) => return Self(text),
                Err(error) => {
                    warnings.push(ignored("password-file-unreadable").with_system(&error));
                }
            }
        }
        Self::default()
    }

    /// The password of the first line that matches.
    pub(super) fn find(&self, wanted: &Lookup) -> Option<String> {
        self.0
            .split('\n')
            .map(|line| line.trim_end_matches('\r'))
            .filter(|line| !line.starts_with('#'))
            .find_map(|line| {
                let rest = after_match(line, wanted.host)?;
                let rest = after_match(rest, wanted.port)?;
                let rest = after_match(rest, wanted.database)?;
                after_match(rest, wanted.user).map(unescape)
            })
    }
}

/// What follows the first field of the line, if the field is `*` or, its escapes removed, equals
/// the word.
fn after_match<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut field = line.chars();
    let mut word = word.chars();
    loop {
        let wanted = word.next();
        match field.next()? {
            ':' if wanted.is_none() => return Some(field.as_str()),
            '\\' if field.next() == wanted && wanted.is_some() => {}
            c if c != '\\' && Some(c) == wanted => {}
            _ => return None,
        }
    }
}

/// The password ends with the line or at a colon that has no backslash before it. A backslash
/// at the very end stands for itself.
fn unescape(field: &str) -> String {
    let mut password = String::new();
    let mut field = field.chars();
    while let Some(c) = field.next().filter(|c| *c != ':') {
        password.push(if c == '\\' { field.next().unwrap_or('\\') } else { c });
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(file: &str, host: &str, database: &str) -> Option<String> {
        let wanted = Lookup { host, port: "5432", database, user: "anna" };
        PasswordFile(file.to_owned()).find(&wanted)
    }

    #[test]
    fn fields_match_by_text_or_by_star_with_escapes_removed() {
        for (file, expected) in [
            ("pi4:5432:bench:anna:pw", Some("pw")),
            ("*:*:*:*:pw", Some("pw")),
            ("p\\i4:5432:bench:anna:pw", Some("pw")),
            ("pi4:5432:bench:anna:a\\:b\\\\c", Some("a:b\\c")),
            ("pi4:5432:bench:anna:pw:rest", Some("pw")),
            ("pi4:5432:bench:anna:pw\\", Some("pw\\")),
            ("pi4:5432:bench:anna:", Some("")),
            ("pi4:5432:bench:anna: pw ", Some(" pw ")),
            ("#pi4:5432:bench:anna:pw", None),
            ("\\*:5432:bench:anna:pw", None),
            ("pi4*:5432:bench:anna:pw", None),
            ("pi:5432:bench:anna:pw", None),
            ("pi45:5432:bench:anna:pw", None),
            ("pi4\\:5432:bench:anna:pw", None),
            ("pi4:5432:bench:anna", None),
            ("pi4:5433:*:*:no\r\npi4:5432:bench:*:pw\r\n*:*:*:*:late", Some("pw")),
        ] {
            assert_eq!(find(file, "pi4", "bench").as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn a_colon_in_a_name_may_be_escaped_but_need_not_be() {
        for file in ["\\:\\:1:5432:a\\\\b:anna:pw", "::1:5432:*:anna:pw"] {
            assert_eq!(find(file, "::1", "a\\b").as_deref(), Some("pw"), "{file}");
        }
    }
}
