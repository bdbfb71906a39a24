//! Connection services: named groups of keywords in `pg_service.conf`. Offers their values to
//! keywords that are still open; knows nothing of variables and defaults.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::keywords::{self, Keyword, Values};
use super::{invalid, is_space};
use crate::error::{Error, Result, Value};

/// Where Debian's packages keep the system's file; PGSYSCONFDIR says otherwise.
const SYSTEM_DIRECTORY: &str = "/etc/postgresql-common";

/// Takes over the service that the string or PGSERVICE names, if any does. Errors: a named file
/// is not there, no file has the service, or a line of it is wrong (with file and line).
pub(super) fn apply(values: &mut Values, environment: &dyn Environment) -> Result<()> {
    let named = values.raw("service").map(str::to_owned);
    let Some(name) = named.or_else(|| environment.var("PGSERVICE")) else {
        return Ok(());
    };
    let (mut files, mut absent) = (Vec::new(), Vec::new());
    for place in places(values, environment) {
        if !place.named && !environment.exists(&place.path) {
            files.push(place.path.display().to_string());
            absent.extend(files.last().cloned());
            continue;
        }
        let text = environment.read_file(&place.path).map_err(|error| {
            let path = place.path.display().to_string();
            invalid("cannot-read-service-file").with("path", path).with_system(&error)
        })?;
        if let Some(pairs) = section(&text, &name, &place.path)? {
            return pairs.into_iter().try_for_each(|(keyword, value)| values.offer(keyword, value));
        }
        files.push(place.path.display().to_string());
    }
    let error = invalid("service-not-found").with("service", name);
    let error = error.with("files", Value::List(files));
    Err(if absent.is_empty() { error } else { error.with("absent", Value::List(absent)) })
}

/// A file to look at.
struct Place {
    path: PathBuf,
    /// Somebody asked for this very file, so its absence is an error.
    named: bool,
}

/// The user's file and then the system's.
fn places(values: &Values, environment: &dyn Environment) -> Vec<Place> {
    let named = values.raw("servicefile").map(str::to_owned);
    let user = match named.or_else(|| environment.var("PGSERVICEFILE")) {
        Some(path) => Some(Place { path: path.into(), named: true }),
        None => environment
            .home()
            .map(|home| Place { path: home.join(".pg_service.conf"), named: false }),
    };
    let directory = environment.var("PGSYSCONFDIR").unwrap_or_else(|| SYSTEM_DIRECTORY.to_owned());
    let system = Place { path: Path::new(&directory).join("pg_service.conf"), named: false };
    user.into_iter().chain([system]).collect()
}

/// The pairs of the first section of that name, or `None` if the file has none. Sections of
/// other names are not even looked at.
fn section(text: &str, name: &str, path: &Path) -> Result<Option<Vec<(&'static Keyword, String)>>> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_matches(is_space)))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    if !lines.any(|(_, line)| is_header(line, name)) {
        return Ok(None);
    }
    lines
        .take_while(|(_, line)| !line.starts_with('['))
        .map(|(number, line)| {
            let about = || format!("{}:{number}", path.display());
            parse_line(line).map_err(|error| Error { about: about(), ..error })
        })
        .collect::<Result<Vec<_>>>()
        .map(Some)
}

fn is_header(line: &str, name: &str) -> bool {
    line.strip_prefix('[')
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with(']'))
}

fn parse_line(line: &str) -> Result<(&'static Keyword, String)> {
    if line.starts_with("ldap") {
        return Err(invalid("service-from-ldap"));
    }
    let (name, value) =
        line.split_once('=').ok_or_else(|| invalid("service-line-without-equals"))?;
    if name == "service" || name == "servicefile" {
        return Err(invalid("service-names-service").with("keyword", name));
    }
    let bare = name.trim_matches(is_space);
    if bare != name && keywords::find(bare).is_ok() {
        return Err(invalid("service-line-with-space").with("keyword", bare));
    }
    Ok((keywords::find(name)?, value.to_owned()))
}
