//! Tests of the resolver in a world of their own: no process state, no real files. The tables of
//! `strings` and `sources` hold what libpq 18.6 answered to the same question.

mod endpoints;
mod names;
mod security;
mod sources;
mod strings;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{Conninfo, Environment, resolve};
use crate::error::Error;

/// Anna's machine: her variables, and files with their modes.
#[derive(Default)]
struct World {
    variables: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, (u32, String)>,
    nameless: bool,
    chance: u64,
}

impl World {
    /// Debian, with its socket directory, and nothing else.
    fn new() -> Self {
        Self::default().file("/var/run/postgresql", 0o040_755, "")
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn file(mut self, path: &str, mode: u32, text: &str) -> Self {
        self.files.insert(path.into(), (mode, text.to_owned()));
        self
    }

    fn resolve(&self, dsn: &str) -> Conninfo {
        resolve(dsn, &[], self).unwrap_or_else(|error| panic!("{dsn}: {error}"))
    }

    fn refuse(&self, dsn: &str) -> Error {
        resolve(dsn, &[], self).expect_err(dsn)
    }
}

impl Environment for World {
    fn var(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        let found = self.files.get(path).map(|(_, text)| text.clone());
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        self.files.get(path).map(|(mode, _)| *mode)
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn user_name(&self) -> Option<String> {
        (!self.nameless).then(|| "anna".to_owned())
    }

    fn home(&self) -> Option<PathBuf> {
        (!self.nameless).then(|| "/home/anna".into())
    }

    fn chance(&self) -> u64 {
        self.chance
    }
}
