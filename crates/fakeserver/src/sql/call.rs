//! The mini language: `fake_...(...)` calls inside a statement, and what they make of it. Knows
//! nothing of the rest of the statement.

use std::time::Duration;

use super::lexer;
use crate::messages::Report;
use crate::random::Random;

/// Most notices that one statement can ask for.
const MOST_NOTICES: u32 = 10_000;
/// Longest value of a row, as in PostgreSQL.
const LONGEST_VALUE: usize = (1 << 30) - 1;

/// What a statement does in addition to its usual answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Effect {
    /// Service time; `None` is for ever.
    pub(crate) delay: Option<Duration>,
    /// Notices before the answer.
    pub(crate) notices: u32,
    /// What the answer is.
    pub(crate) outcome: Outcome,
}

/// What a statement is answered with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// Its rows and its tag.
    Usual,
    /// Many rows of one value, made while they are sent.
    Rows { rows: u64, bytes: usize },
    /// An error; a fatal one ends the session.
    Failure(Report),
    /// Nothing: the connection closes.
    Disconnect,
}

impl Effect {
    /// The effect of a statement without calls.
    pub(crate) const NONE: Self =
        Self { delay: Some(Duration::ZERO), notices: 0, outcome: Outcome::Usual };

    fn add_ms(&mut self, ms: f64) -> Result<(), Report> {
        let delay = Duration::try_from_secs_f64(ms / 1e3)
            .map_err(|_| invalid(format!("a delay cannot be {ms} ms")))?;
        self.delay = self.delay.map(|before| before.saturating_add(delay));
        Ok(())
    }
}

/// Where calls get their random numbers.
pub(crate) trait Dice {
    /// The server's generator, or the one of this seed.
    fn random(&mut self, seed: Option<u64>) -> &mut Random;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Sleep { ms_per_unit: u32 },
    Exponential,
    Rows,
    Error,
    Notice,
    Terminate,
    Disconnect,
    Hang,
}

const FUNCTIONS: [(&str, Function); 9] = [
    ("fake_sleep", Function::Sleep { ms_per_unit: 1 }),
    ("pg_sleep", Function::Sleep { ms_per_unit: 1000 }),
    ("fake_exponential", Function::Exponential),
    ("fake_rows", Function::Rows),
    ("fake_error", Function::Error),
    ("fake_notice", Function::Notice),
    ("fake_terminate", Function::Terminate),
    ("fake_disconnect", Function::Disconnect),
    ("fake_hang", Function::Hang),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Text(Box<str>),
    Parameter(usize),
}

/// One call in a statement's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    function: Function,
    name: &'static str,
    arguments: Vec<Argument>,
}

impl Call {
    /// Whether it answers with rows of its own.
    pub(crate) fn makes_rows(&self) -> bool {
        self.function == Function::Rows
    }
}

/// The calls in `sql`, also those inside comments and quotes.
pub(crate) fn find_calls(sql: &str) -> Result<Vec<Call>, Report> {
    let mut calls = Vec::new();
    let mut at = 0;
    while let Some(open) = sql[at..].find('(').map(|found| at + found) {
        at = open + 1;
        let name = last_word(&sql[..open]);
        if let Some((name, function)) = find_function(name)? {
            let arguments = parse_arguments(&sql[at..]);
            calls.push(Call { function, name, arguments });
        }
    }
    Ok(calls)
}

fn last_word(before: &str) -> &str {
    let before = before.trim_ascii_end();
    let start = before.bytes().rposition(|byte| !lexer::is_word_byte(byte));
    &before[start.map_or(0, |start| start + 1)..]
}

fn find_function(name: &str) -> Result<Option<(&'static str, Function)>, Report> {
    let known = FUNCTIONS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
    let is_ours = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("fake_"));
    if known.is_none() && is_ours {
        return Err(Report::error("42883", format!("function {name}() does not exist")));
    }
    Ok(known.copied())
}

/// The arguments at the start of `text`, up to the closing bracket.
fn parse_arguments(text: &str) -> Vec<Argument> {
    let close = lexer::tokens(text).find(|token| token.is_keyword(")"));
    let inside = &text[..close.map_or(text.len(), |close| close.start)];
    if inside.trim().is_empty() {
        return Vec::new();
    }
    lexer::split(inside, ',').into_iter().map(parse_argument).collect()
}

fn parse_argument(text: &str) -> Argument {
    let text = text.split("::").next().unwrap_or_default().trim();
    match text.strip_prefix('$').and_then(|number| number.parse().ok()) {
        Some(number) => Argument::Parameter(number),
        None => Argument::Text(text.trim_matches('\'').into()),
    }
}

/// What `calls` make of one execution with these parameters. A later call overrides the outcome
/// of an earlier one; delays and notices add up.
pub(crate) fn evaluate(
    calls: &[Call],
    parameters: &[Option<String>],
    dice: &mut dyn Dice,
) -> Result<Effect, Report> {
    let mut effect = Effect::NONE;
    for call in calls {
        Arguments { call, parameters }.apply(&mut effect, dice)?;
    }
    Ok(effect)
}

struct Arguments<'a> {
    call: &'a Call,
    parameters: &'a [Option<String>],
}

impl<'a> Arguments<'a> {
    fn apply(&self, effect: &mut Effect, dice: &mut dyn Dice) -> Result<(), Report> {
        match self.call.function {
            Function::Sleep { ms_per_unit } => {
                return effect.add_ms(self.number::<f64>(0)? * f64::from(ms_per_unit));
            }
            Function::Exponential => {
                let seed = self.get(1)?.map(|_| self.number(1)).transpose()?;
                return effect.add_ms(dice.random(seed).exponential(self.number(0)?));
            }
            Function::Notice => {
                effect.notices = self.at_most(0, MOST_NOTICES)?;
            }
            Function::Hang => effect.delay = None,
            Function::Disconnect => effect.outcome = Outcome::Disconnect,
            Function::Rows => {
                let bytes = self.at_most(1, LONGEST_VALUE)?;
                effect.outcome = Outcome::Rows { rows: self.number(0)?, bytes };
            }
            Function::Error => effect.outcome = Outcome::Failure(self.error()?),
            Function::Terminate => {
                let message = "terminating connection due to administrator command";
                effect.outcome = Outcome::Failure(Report::fatal("57P01", message));
            }
        }
        Ok(())
    }

    fn error(&self) -> Result<Report, Report> {
        let code = self.get(0)?.unwrap_or("XX000");
        let message = self.get(1)?.unwrap_or("fake error");
        if code.len() != 5 || !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(invalid(format!(
                "\"{code}\" is not an SQLSTATE: expected five characters"
            )));
        }
        Ok(Report::error(code, message))
    }

    /// Argument `index` as text, where it is given and not NULL.
    fn get(&self, index: usize) -> Result<Option<&'a str>, Report> {
        match self.call.arguments.get(index) {
            None => Ok(None),
            Some(Argument::Text(text)) => Ok(Some(text)),
            Some(Argument::Parameter(number)) => number
                .checked_sub(1)
                .and_then(|position| self.parameters.get(position))
                .map(Option::as_deref)
                .ok_or_else(|| Report::error("42P02", format!("there is no parameter ${number}"))),
        }
    }

    fn number<T: std::str::FromStr>(&self, index: usize) -> Result<T, Report> {
        let text = self.get(index)?.unwrap_or("nothing");
        text.trim().parse().map_err(|_| {
            let name = self.call.name;
            invalid(format!("{name}(): argument {} is {text}: expected a number", index + 1))
        })
    }

    fn at_most<T>(&self, index: usize, most: T) -> Result<T, Report>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let number: T = self.number(index)?;
        if number > most {
            return Err(invalid(format!("{}(): {number} is over {most}", self.call.name)));
        }
        Ok(number)
    }
}

fn invalid(message: String) -> Report {
    Report::error("22023", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneDie(Random);

    impl Dice for OneDie {
        fn random(&mut self, _seed: Option<u64>) -> &mut Random {
            &mut self.0
        }
    }

    fn effect(sql: &str, parameters: &[&str]) -> Result<Effect, Report> {
        let parameters: Vec<_> = parameters.iter().map(|&text| Some(text.to_owned())).collect();
        evaluate(&find_calls(sql)?, &parameters, &mut OneDie(Random::new(1)))
    }

    #[test]
    fn delays_are_found_wherever_they_stand_and_add_up() {
        for (sql, ms) in [
            ("SELECT 1", 0.0),
            ("SELECT fake_sleep(2.5)", 2.5),
            ("select FAKE_SLEEP ( $1::float8 )", 7.0),
            ("UPDATE t SET a = 1 /* fake_sleep(3), fake_sleep('4') */", 7.0),
            ("SELECT pg_sleep(0.01)", 10.0),
            ("SELECT not_fake_sleep(1)", 0.0),
        ] {
            let delay = effect(sql, &["7"]).unwrap().delay.unwrap();
            assert_eq!(delay, Duration::from_secs_f64(ms / 1e3), "{sql}");
        }
    }

    #[test]
    fn outcomes_are_what_the_text_asks_for() {
        let outcome = |sql| effect(sql, &["a", "2"]).unwrap().outcome;
        assert_eq!(outcome("SELECT fake_rows(3, $2)"), Outcome::Rows { rows: 3, bytes: 2 });
        assert_eq!(outcome("SELECT fake_disconnect()"), Outcome::Disconnect);
        let error = Outcome::Failure(Report::error("40001", "no, really"));
        assert_eq!(outcome("SELECT fake_error('40001', 'no, really')"), error);
        assert!(matches!(
            outcome("SELECT fake_terminate()"),
            Outcome::Failure(Report { severity: "FATAL", .. })
        ));
        assert_eq!(effect("SELECT fake_hang()", &[]).unwrap().delay, None);
        assert_eq!(effect("SELECT fake_notice(2)", &[]).unwrap().notices, 2);
    }

    #[test]
    fn what_cannot_be_done_is_an_error_with_a_code() {
        for (sql, code) in [
            ("SELECT fake_slep(1)", "42883"),
            ("SELECT fake_sleep()", "22023"),
            ("SELECT fake_sleep(x)", "22023"),
            ("SELECT fake_sleep(-1)", "22023"),
            ("SELECT fake_sleep($3)", "42P02"),
            ("SELECT fake_error('4001')", "22023"),
            ("SELECT fake_rows(1, 1073741824)", "22023"),
            ("SELECT fake_notice(1000000)", "22023"),
        ] {
            assert_eq!(&*effect(sql, &["1", "2"]).unwrap_err().code, code, "{sql}");
        }
    }
}
