//! Where clients connect to. If they lose the server, it is looked for again as at the start: host
//! names are looked up anew, every host is tried, and it must play the part that is asked for. One
//! thread does that for all clients, so a server that refuses us is not asked by each of them.

use crate::conninfo::{Address as Named, Conninfo, TargetSessionAttrs};
use crate::error::Error;
use crate::poll::Address;
use crate::route::{self, Route};
use crate::wire::Settings;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The pauses between two searches: doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How long a search waits for one address: a dead host must not hide the one behind it. Doubled
/// with each attempt, up to the time for connecting.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the server was found.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where.
    pub address: Address,
    /// How to log in there.
    pub settings: Arc<Settings>,
    /// How many places were found before.
    pub number: u32,
    /// Whether the one before had another address.
    pub moved: bool,
}

/// How a client lost the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its session ended; the server may let it in again.
    Session,
    /// It could not connect.
    Connection,
    /// The server rejected its login, or TLS.
    Refusal,
}

/// The place to connect to, for all threads of a load.
#[derive(Debug)]
pub struct Destination {
    /// What to search with.
    conninfo: Option<Arc<Conninfo>>,
    /// Whether the server can be elsewhere.
    moves: bool,
    /// Whether a server that lets us in can be the wrong one.
    plays_part: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    place: Arc<Place>,
    searching: bool,
    why: Option<Error>,
    over: bool,
}

impl State {
    fn at(address: Address, settings: Arc<Settings>) -> Mutex<Self> {
        let place = Arc::new(Place { address, settings, number: 0, moved: false });
        Mutex::new(Self { place, searching: false, why: None, over: false })
    }
}

impl Destination {
    /// The destination of a load that begins on this route.
    #[must_use]
    pub fn new(route: &Route) -> Arc<Self> {
        let conninfo = Arc::clone(&route.conninfo);
        let plays_part = conninfo.target_session_attrs() != TargetSessionAttrs::Any;
        let moves = plays_part || can_move(&conninfo);
        let state = State::at(route.address.clone(), Arc::clone(&route.settings));
        Arc::new(Self { conninfo: Some(conninfo), moves, plays_part, state })
    }

    /// An address that stays.
    #[must_use]
    pub fn at(address: Address, settings: Arc<Settings>) -> Arc<Self> {
        let state = State::at(address, settings);
        Arc::new(Self { conninfo: None, moves: false, plays_part: false, state })
    }

    /// Where to connect; while the server is searched, why it was not found so far.
    ///
    /// # Errors
    /// The server is being searched; why the last attempt failed, if one did.
    pub fn place(&self) -> Result<Arc<Place>, Option<Error>> {
        let state = self.state();
        if state.searching { Err(state.why.clone()) } else { Ok(Arc::clone(&state.place)) }
    }

    /// A client has lost the server at the place of this number.
    pub fn lost(self: &Arc<Self>, number: u32, how: Loss) {
        let elsewhere = match how {
            Loss::Session => self.plays_part,
            Loss::Connection => self.moves,
            Loss::Refusal => true,
        };
        let mut state = self.state();
        let known = state.searching || state.over || state.place.number != number;
        if known || !elsewhere || self.conninfo.is_none() {
            return;
        }
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("pgpaces-search".into());
        // Without a thread clients go on where the server was.
        state.searching = thread.spawn(move || this.search()).is_ok();
    }

    /// The load is over: nothing is searched any more.
    pub fn end(&self) {
        self.state().over = true;
    }

    fn search(&self) {
        // Clients wait for the end of the search, also if it ends by a bug.
        let _guard = Searching(self);
        let conninfo = self.conninfo.as_ref().expect("a search has what to search with");
        let (mut pause, mut patience) = (PAUSES.0, PATIENCE);
        loop {
            if self.state().over {
                return;
            }
            let found = route::find_within(conninfo, patience);
            let mut state = self.state();
            match found {
                Ok(Route { address, settings, .. }) => {
                    let (number, moved) = (state.place.number + 1, state.place.address != address);
                    state.place = Arc::new(Place { address, settings, number, moved });
                    state.why = None;
                    return;
                }
                Err(error) => state.why = Some(error),
            }
            drop(state);
            std::thread::sleep(pause);
            pause = PAUSES.1.min(2 * pause);
            patience = patience.saturating_mul(2);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A search that is going on.
struct Searching<'a>(&'a Destination);

impl Drop for Searching<'_> {
    fn drop(&mut self) {
        self.0.state().searching = false;
    }
}

/// Whether the server may be at another address later: it has a name, or another host.
fn can_move(conninfo: &Conninfo) -> bool {
    let endpoints = conninfo.endpoints().unwrap_or_default();
    let named = endpoints.iter().any(|endpoint| match &endpoint.address {
        Named::Unix(_) => false,
        Named::Tcp { host } => host.parse::<IpAddr>().is_err(),
    });
    named || endpoints.len() > 1
}
