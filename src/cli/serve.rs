//! `undersign serve`: builds the adapters, the application, its listeners and its loops, and takes them down again.

mod parts;
mod reload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use secrecy::ExposeSecret as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::source::{SystemClock, SystemEntropy};
use super::{Failure, Outcome};
use crate::app::{App, Parts};
use crate::config::{self, Config, SlackConfig};
use crate::domain::ids::Installation;
use crate::http::server::{Serving, Stop};
use crate::http::{self, AgentKeys, Bodies, Limits, Shared, Sites, TrustedProxies, Tuning};
use crate::mcp::server::Services;
use crate::storage::{self, Db};
use crate::workers::{self, Beats};

use parts::{announce, callers, chats, tenants};
use reload::{Fixed, Watch};

pub use reload::Reloaded;

pub(super) use parts::{slack_app, upstream_port};

/// How long a stopping service waits for what is under way before it drops it.
const DRAIN: Duration = Duration::from_secs(30);

/// How long signing the audit chain's heads may hold a stop up.
const LAST_SIGNATURE: Duration = Duration::from_secs(3);

/// How long it goes on accepting after `/readyz` has turned, so that a load balancer can look elsewhere first.
const GRACE: Duration = Duration::from_secs(1);

/// How long a request may take where none is held open on purpose.
const WHOLE_REQUEST: Duration = Duration::from_secs(30);

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs the service until it is told to stop: the first SIGTERM or SIGINT lets what is under way finish, a second one
/// drops it.
pub(super) async fn run(args: Args) -> Outcome {
    let no_signals = |error| Failure::no(format!("no signals can be had: {error}"));
    let mut watch = Watch::new(&args.config).await.map_err(no_signals)?;
    let config = config::load(&args.config)?;
    let mut signals = Signals::new().map_err(no_signals)?;
    allow_many_connections();
    for warning in &config.warnings {
        tracing::warn!(%warning, "configuration");
    }
    let mut service = Service::start(config).await?;
    println!("agents     http://{}/mcp", service.agents());
    println!("callbacks  http://{}/callbacks/slack/…", service.callbacks());
    println!("admin      http://{}/readyz", service.admin());
    let ended = loop {
        tokio::select! {
            () = signals.next() => break None,
            ended = service.ended() => break Some(ended),
            loaded = watch.next() => {
                if service.reload(loaded).await == Reloaded::Again {
                    watch.again();
                }
            }
        }
    };
    let hard = service.stop.hard.clone();
    tokio::spawn(async move {
        signals.next().await;
        hard.cancel();
    });
    if ended.is_none() {
        service.announce_stop();
        tokio::select! {
            () = service.stop.hard.cancelled() => {}
            () = tokio::time::sleep(GRACE) => {}
        }
    }
    let drained = service.stop().await;
    match ended {
        Some(part) => Err(Failure::no(format!("{part}: the service can't go on"))),
        None if !drained => Err(Failure::no("stopped before everything under way had ended")),
        None => Ok(super::Done),
    }
}

/// SIGTERM and SIGINT, which are kept for us from the moment this exists.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Raises the soft limit of open files to the hard one: many systems start a process with 1,024, which is fewer than the
/// connections that the listeners take.
fn allow_many_connections() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database.
    #[error("the database: {0}")]
    Storage(#[from] storage::Error),
    /// An address is taken, or a root certificate store is missing.
    #[error("{what}: {error}")]
    Io {
        /// What was to be done.
        what: String,
        /// Why it failed.
        error: std::io::Error,
    },
    /// The HTTP client for upstreams.
    #[error("the HTTP client for upstreams can't be built")]
    Client,
}

/// A running service: what `serve`, the demo and the tests start.
pub struct Service {
    addresses: [SocketAddr; 3],
    leaving: CancellationToken,
    stop: Stop,
    parts: JoinSet<&'static str>,
    tasks: TaskTracker,
    app: App,
    shared: Arc<Shared>,
    fixed: Fixed,
    slack: BTreeMap<Installation, SlackConfig>,
}

impl Service {
    /// Starts everything; when it returns, every listener accepts.
    ///
    /// # Errors
    /// The database can't be reached or has another schema, or an address can't be had.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, Tuning::default()).await
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(config: Config, tuning: Tuning) -> Result<Self, StartError> {
        let url = config.database.url.expose_secret();
        if config.database.migrate {
            Db::migrate(url).await?;
        }
        let db = Db::connect(url, config.database.max_connections).await?;
        db.check_schema().await?;
        if db.may_change_audit_rows().await? {
            tracing::warn!(
                "this database role may change audit rows; triggers and the chain stand against that, \
                 deploy/postgres/roles.sql makes a role that may not"
            );
        }
        let server = &config.server;
        let agents = listen("server.agents_listen", server.agents_listen)?;
        let callbacks = listen("server.callbacks_listen", server.callbacks_listen)?;
        let admin = listen("server.admin_listen", server.admin_listen)?;
        let addresses = [address(&agents)?, address(&callbacks)?, address(&admin)?];

        let fixed = Fixed::of(&config);
        let (apps, chats) = chats(&config.slack)?;
        let tasks = TaskTracker::new();
        let keys = AgentKeys::new(callers(&config.tenants));
        let hosts = hosts(&config, addresses[0]);
        let origins = server.allowed_origins.clone();
        let sites = Sites::new(&hosts, &origins);
        let proxies = Arc::new(TrustedProxies::new(server.trusted_proxies.clone()));
        announce(&db, &config.tenants).await?;
        let tenants = tenants(config.tenants)?;
        let leaving = CancellationToken::new();
        let app = App::new(Parts {
            db,
            tenants,
            chats: ArcSwap::from_pointee(chats),
            keys: ArcSwap::from_pointee(config.token_keys),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            tasks: tasks.clone(),
            stop: leaving.clone(),
        });
        let shared = Arc::new(Shared {
            app: app.clone(),
            services: Services::new(app.clone(), hosts, origins, server.hold),
            keys,
            slack: ArcSwap::from_pointee(apps),
            clock: Arc::new(SystemClock),
            sites,
            limits: Limits::new(tuning.rates),
            bodies: Bodies::default(),
            callback_bodies: Bodies::default(),
        });

        let stop = Stop::default();
        let mut parts = JoinSet::new();
        for (name, listener, router, request) in [
            // A call is held while people decide, or for as long as its upstream may take.
            ("the agents' listener ended", agents, http::agents(shared.clone()), None),
            (
                "the callbacks' listener ended",
                callbacks,
                http::callbacks(shared.clone()),
                Some(WHOLE_REQUEST),
            ),
            ("the admin listener ended", admin, http::admin(shared.clone()), Some(WHOLE_REQUEST)),
        ] {
            let (stop, proxies) = (stop.clone(), proxies.clone());
            let serving = Serving { timeouts: tuning.timeouts, caps: tuning.caps, request, proxies };
            parts.spawn(async move {
                http::server::serve(listener, router, serving, stop).await;
                name
            });
        }
        let (loops, worker) = (stop.soft.clone(), app.clone());
        parts.spawn(async move {
            workers::run(worker, Beats::default(), loops).await.err().unwrap_or("the worker loops ended")
        });
        tracing::info!(agents = %addresses[0], callbacks = %addresses[1], admin = %addresses[2], "ready");
        Ok(Self { addresses, leaving, stop, parts, tasks, app, shared, fixed, slack: config.slack })
    }

    /// Where agents connect.
    pub fn agents(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Where chat platforms call back.
    pub fn callbacks(&self) -> SocketAddr {
        self.addresses[1]
    }

    /// Where health is asked for.
    pub fn admin(&self) -> SocketAddr {
        self.addresses[2]
    }

    /// Waits for a part to end that should not; what it was.
    pub async fn ended(&mut self) -> &'static str {
        match self.parts.join_next().await {
            Some(Ok(part)) => part,
            Some(Err(_)) => "a part of the service panicked",
            None => "nothing is running",
        }
    }

    /// Says on `/readyz` that the service is about to stop, and has those answered who wait for a decision.
    pub fn announce_stop(&self) {
        self.leaving.cancel();
    }

    /// Stops accepting, waits for what is under way, drops what is left after half a minute, signs the audit chain's
    /// heads, closes the pool. False if
    /// something had to be dropped.
    pub async fn stop(mut self) -> bool {
        self.announce_stop();
        self.stop.soft.cancel();
        self.tasks.close();
        let drained = {
            let drain = async {
                while self.parts.join_next().await.is_some() {}
                self.tasks.wait().await;
            };
            tokio::select! {
                () = self.stop.hard.cancelled() => false,
                drained = tokio::time::timeout(DRAIN, drain) => drained.is_ok(),
            }
        };
        if !drained {
            tracing::error!("stopped before everything under way had ended");
            self.stop.hard.cancel();
            self.parts.shutdown().await;
        }
        let closed = tokio::time::timeout(LAST_SIGNATURE, self.app.close_audit()).await;
        if let Ok(Err(error)) = closed {
            tracing::warn!(%error, "the heads of the audit chain could not be signed at the end");
        }
        self.app.db.close().await;
        drained
    }
}

fn listen(key: &str, address: SocketAddr) -> Result<TcpListener, StartError> {
    http::server::listen(address).map_err(|error| StartError::Io {
        what: format!("{key} = \"{address}\" can't be listened on"),
        error,
    })
}

fn address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|error| StartError::Io { what: "a listener has no address".to_owned(), error })
}

/// The hosts that requests may name: where we listen, what we are called, and what the configuration adds.
fn hosts(config: &Config, listening: SocketAddr) -> Vec<String> {
    let mut hosts = vec![listening.ip().to_string(), listening.to_string()];
    if listening.ip().is_loopback() {
        hosts.push("localhost".to_owned());
    }
    hosts.extend(config.server.public_url.host_str().map(str::to_owned));
    hosts.extend(config.server.allowed_hosts.iter().cloned());
    hosts
}
