//! From the first byte of a connection to its first ReadyForQuery. Knows no SQL.

use super::{Flow, Phase, Session, Turn};
use crate::auth::{self, Login, Verdict};
use crate::config::Auth;
use crate::frames::{self, Body, Frame, Malformed, Opening};
use crate::messages::{self, Report};

/// Who wants to come in.
#[derive(Debug)]
pub(super) struct Applicant {
    user: String,
    database: String,
    application_name: String,
    login: Option<Login>,
}

impl Session {
    pub(super) fn receive_opening(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<Option<(usize, Flow)>, Malformed> {
        let Some((opening, length)) = frames::opening(bytes)? else {
            return Ok(None);
        };
        let flow = match opening {
            Opening::Encryption => {
                turn.out.push(b'N');
                Flow::Next
            }
            Opening::Cancel(key) => Flow::Cancel(key),
            Opening::Startup { minor, body } => self.start(minor, body, turn)?,
        };
        Ok(Some((length, flow)))
    }

    fn start(&mut self, minor: u16, body: &[u8], turn: &mut Turn<'_>) -> Result<Flow, Malformed> {
        let options = startup_options(body)?;
        let get = |name| options.iter().find(|(key, _)| key == name).map(|(_, v)| v.clone());
        let Some(user) = get("user") else {
            let why = "no PostgreSQL user name specified in startup packet";
            return Ok(self.fail(&Report::fatal("28000", why), turn));
        };
        let unknown: Vec<&str> =
            options.iter().map(|(key, _)| &**key).filter(|key| key.starts_with("_pq_.")).collect();
        if minor > 0 || !unknown.is_empty() {
            messages::negotiate_protocol(turn.out, &unknown);
        }
        if turn.state.config.max_connections.is_some_and(|most| turn.state.sessions >= most) {
            let report = Report::fatal("53300", "sorry, too many clients already");
            return Ok(self.fail(&report, turn));
        }
        turn.state.sessions += 1;
        self.is_counted = true;
        let database = get("database").unwrap_or_else(|| user.clone());
        let application_name = get("application_name").unwrap_or_default();
        let applicant = Box::new(Applicant { user, database, application_name, login: None });
        let auth = turn.state.config.auth;
        let verdict = auth::challenge(auth, &mut turn.state.secrets, turn.out);
        Ok(self.follow(applicant, verdict, turn))
    }

    /// Handles a message of a client before its login.
    pub(super) fn log_in(
        &mut self,
        frame: Frame<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Flow, Malformed> {
        let phase = std::mem::replace(&mut self.phase, Phase::Ready);
        let Phase::LoggingIn(mut applicant) = phase else {
            return Ok(Flow::Close);
        };
        let login = match (frame.kind, applicant.login.take()) {
            (b'p', Some(login)) => login,
            (b'X', _) => return Ok(Flow::Close),
            _ => return Err(Malformed("expected a password")),
        };
        let state = &mut *turn.state;
        let account = (applicant.user.as_str(), &state.account);
        let verdict = login.judge(frame.body, account, &mut state.secrets, turn.out)?;
        Ok(self.follow(applicant, verdict, turn))
    }

    fn follow(
        &mut self,
        mut applicant: Box<Applicant>,
        verdict: Verdict,
        turn: &mut Turn<'_>,
    ) -> Flow {
        match verdict {
            Verdict::More(login) => {
                applicant.login = Some(login);
                self.phase = Phase::LoggingIn(applicant);
                Flow::Next
            }
            Verdict::Denied => self.fail(&denial(&applicant, turn.state.config.auth), turn),
            Verdict::Accepted => match objection(&applicant, turn) {
                Some(report) => self.fail(&report, turn),
                None => self.welcome(&applicant, turn),
            },
        }
    }

    fn welcome(&mut self, applicant: &Applicant, turn: &mut Turn<'_>) -> Flow {
        auth::accept(turn.out);
        for (name, value) in turn.state.settings() {
            messages::parameter_status(turn.out, name, value);
        }
        messages::parameter_status(turn.out, "session_authorization", &applicant.user);
        messages::parameter_status(turn.out, "application_name", &applicant.application_name);
        messages::backend_key_data(turn.out, self.key);
        messages::ready_for_query(turn.out, self.transaction);
        turn.state.journal.stats.logged_in += 1;
        self.phase = Phase::Ready;
        Flow::Next
    }
}

fn startup_options(body: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
    let mut body = Body(body);
    let mut options = Vec::new();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    loop {
        let name = body.string()?;
        if name.is_empty() {
            return Ok(options);
        }
        options.push((text(name), text(body.string()?)));
    }
}

fn denial(applicant: &Applicant, auth: Auth) -> Report {
    let Applicant { user, database, .. } = applicant;
    match auth {
        Auth::Reject => {
            let message = format!(
                "pg_hba.conf rejects connection for user \"{user}\", database \"{database}\", \
                 no encryption"
            );
            Report::fatal("28000", message)
        }
        _ => {
            let message = format!("password authentication failed for user \"{user}\"");
            Report::fatal("28P01", message)
        }
    }
}

/// Why a client with the right password is rejected all the same.
fn objection(applicant: &Applicant, turn: &Turn<'_>) -> Option<Report> {
    let config = &turn.state.config;
    let Applicant { user, database, .. } = applicant;
    if config.user.as_ref().is_some_and(|only| only != user) {
        return Some(match config.auth {
            Auth::Trust => Report::fatal("28000", format!("role \"{user}\" does not exist")),
            auth => denial(applicant, auth),
        });
    }
    if config.database.as_ref().is_some_and(|only| only != database) {
        let message = format!("database \"{database}\" does not exist");
        return Some(Report::fatal("3D000", message));
    }
    None
}
