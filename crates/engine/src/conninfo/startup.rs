//! The startup parameters of a session: user, database and settings.
//! Builds the list; the packet is made in `wire`.

use super::Conninfo;
use super::environment::Environment;
use super::keywords::Values;

/// Variables that become settings of the session, as in libpq.
const SETTINGS: &[(&str, &str)] =
    &[("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

/// Character sets of locales and PostgreSQL's names for them. Any other is taken as SQL_ASCII,
/// that is: sent as it is.
const ENCODINGS: &[(&str, &str)] = &[
    ("utf8", "UTF8"),
    ("iso88591", "LATIN1"),
    ("iso885915", "LATIN9"),
    ("eucjp", "EUC_JP"),
    ("koi8r", "KOI8R"),
];

/// The settings that variables ask for; the word `default` asks for nothing.
pub(super) fn settings(environment: &dyn Environment) -> Vec<(String, String)> {
    SETTINGS
        .iter()
        .filter_map(|(variable, name)| Some(((*name).to_owned(), environment.var(variable)?)))
        .filter(|(_, value)| !value.eq_ignore_ascii_case("default"))
        .collect()
}

/// Replaces `client_encoding=auto` by the character set of the locale.
pub(super) fn name_encoding(values: &mut Values, environment: &dyn Environment) {
    if values.get("client_encoding") == Some("auto") {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| environment.var(name).filter(|value| !value.is_empty()));
        let encoding = encoding_of(&locale.unwrap_or_default());
        values.put("client_encoding", encoding.to_owned());
    }
}

fn encoding_of(locale: &str) -> &'static str {
    let name = locale.split('@').next().and_then(|name| name.split_once('.'));
    let (_, charset) = name.unwrap_or_default();
    let charset: String =
        charset.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    ENCODINGS.iter().find(|(known, _)| *known == charset).map_or("SQL_ASCII", |(_, ours)| ours)
}

impl Conninfo {
    /// The parameters of the startup packet in libpq's order: `user` and `database`, then those
    /// of `replication`, `options`, `application_name` and `client_encoding` that are set, then
    /// what PGDATESTYLE, PGTZ and PGGEQO ask for.
    pub fn startup_parameters(&self) -> Vec<(String, String)> {
        let optional = [
            ("replication", self.get("replication")),
            ("options", self.options()),
            ("application_name", self.application_name()),
            ("client_encoding", self.get("client_encoding")),
        ];
        [("user", Some(self.user())), ("database", Some(self.dbname()))]
            .into_iter()
            .chain(optional)
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .chain(self.settings.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::encoding_of;

    #[test]
    fn a_locale_names_its_encoding_after_the_dot() {
        for (locale, expected) in [
            ("de_DE.UTF-8", "UTF8"),
            ("C.utf8", "UTF8"),
            ("de_DE.ISO-8859-15@euro", "LATIN9"),
            ("en_US.ISO8859-1", "LATIN1"),
            ("C", "SQL_ASCII"),
            ("", "SQL_ASCII"),
        ] {
            assert_eq!(encoding_of(locale), expected, "{locale}");
        }
    }
}
