//! Use cases: one verb a file. This layer owns the transactions and declares the ports; it knows no wire format.
//!
//! Whatever changes state runs in a task of its own, so that a client that hangs up ends its own waiting and nothing
//! else. Nothing outside is asked while a transaction is open.

mod audit;
mod decide;
mod deliver;
mod inspect;
mod membership;
pub mod ports;
mod redeem;
mod schema;
mod submit;
mod sweep;
mod throttle;
mod tools;
mod turns;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::answer::Answer;
use crate::domain::call::ToolDefinition;
use crate::domain::ids::{ActionId, AgentName, Installation, Person, Tenant, ToolName, UpstreamName};
use crate::domain::place::Platform;
use crate::domain::policy::Policy;
use crate::domain::source::{Clock, Entropy};
use crate::domain::token::TokenKeys;
use crate::storage::Db;

use ports::{Directory, Messenger, Passing, Upstream};

pub use decide::NotStored;

/// The authenticated agent behind a request. The tenant comes from the credential, never from the path or the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant.
    pub tenant: Tenant,
    /// The agent.
    pub agent: AgentName,
    /// The person it works for.
    pub owner: Option<Person>,
}

/// A `tools/call` as it arrived, for one upstream's tool.
#[derive(Debug)]
pub struct ToolCall {
    /// The upstream.
    pub upstream: UpstreamName,
    /// Its tool.
    pub tool: ToolName,
    /// The raw bytes of `params.arguments`, `None` when absent; the body passed `ijson::scan_body`.
    pub arguments: Option<Bytes>,
    /// `_meta["dev.undersign/approval-token"]`, when present.
    pub token: Option<Value>,
    /// `_meta["dev.undersign/run"]`, when it is a string.
    pub run: Option<String>,
    /// What goes along if policy allows the call.
    pub passing: Passing,
}

/// What a `tools/call` comes to.
#[derive(Debug)]
pub enum Reply {
    /// The upstream's own `tools/call` result.
    Upstream(Value),
    /// What the upstream asks the agent for before it answers.
    InputRequired(Value),
    /// The upstream's own JSON-RPC error.
    UpstreamError {
        /// Its code.
        code: i32,
        /// Its message.
        message: String,
        /// Its data.
        data: Option<Value>,
    },
    /// An answer of ours.
    Answer(Box<Answer>),
    /// No upstream of the tenant's has such a tool: JSON-RPC -32602.
    UnknownTool,
    /// The call carries a `requestState` that is not ours, and is not one that policy allows: JSON-RPC -32602.
    StateRejected,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Answer(Box::new(answer))
    }
}

/// A tool as it may be offered to agents.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    /// As the upstream lists it.
    pub definition: ToolDefinition,
    /// Whether some call of it needs approval: it then gains `approval_token`.
    pub gated: bool,
}

/// One upstream of a tenant, with what policy and cards say about it.
pub struct UpstreamEntry {
    /// The far end.
    pub port: Arc<dyn Upstream>,
    /// Its configured address: part of the policy version.
    pub address: String,
    /// Its environment.
    pub environment: Option<String>,
    /// How long one call may take.
    pub timeout: Duration,
}

/// One tenant.
pub struct TenantEntry {
    /// Its policy in force; another may take its place at any time.
    pub policy: ArcSwap<Policy>,
    /// Its upstreams.
    pub upstreams: BTreeMap<UpstreamName, UpstreamEntry>,
}

/// One installation of a chat app.
#[derive(Clone)]
pub struct ChatEntry {
    /// Posts cards.
    pub messenger: Arc<dyn Messenger>,
    /// Knows people.
    pub directory: Arc<dyn Directory>,
}

/// The chat installations by platform and name.
pub type Chats = HashMap<(Platform, Installation), ChatEntry>;

/// What an application is made of; put together in `cli` alone.
pub struct Parts {
    /// The database.
    pub db: Db,
    /// The tenants.
    pub tenants: HashMap<Tenant, TenantEntry>,
    /// The chat installations.
    pub chats: ArcSwap<Chats>,
    /// The token keys.
    pub keys: ArcSwap<TokenKeys>,
    /// The process's clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Work that outlives requests; shutdown waits for it.
    pub tasks: TaskTracker,
    /// Cancelled when the service begins to stop: whoever waits answers with what is known.
    pub stop: CancellationToken,
}

/// The application. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    parts: Parts,
    /// Agents that wait for a decision.
    waiters: waiting::Waiters,
    /// Turns at the database, for each agent.
    turns: turns::Turns,
    /// Who presented wrong tokens lately.
    wrong_tokens: throttle::WrongTokens,
    /// Bounds how many schema checks run at once.
    checks: Arc<Semaphore>,
    /// Bounds how many outbox rows are worked off at once.
    hands: Arc<Semaphore>,
    /// Bounds how many of them belong to one installation.
    shares: Mutex<HashMap<(Platform, Installation), Arc<Semaphore>>>,
    /// Why the configuration that was loaded last is not wholly in force.
    reload_fault: ArcSwapOption<String>,
    /// Names this process in leases and claims.
    replica: String,
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl App {
    /// Puts the application together.
    pub fn new(parts: Parts) -> Self {
        let mut id = [0; 8];
        parts.entropy.fill(&mut id);
        Self(Arc::new(Inner {
            parts,
            waiters: waiting::Waiters::default(),
            turns: turns::Turns::default(),
            wrong_tokens: throttle::WrongTokens::default(),
            checks: Arc::new(Semaphore::new(4)),
            hands: Arc::new(Semaphore::new(deliver::HANDS)),
            shares: Mutex::default(),
            reload_fault: ArcSwapOption::empty(),
            replica: hex::encode(id),
        }))
    }

    /// The upstreams of a tenant, by name.
    pub fn upstreams(&self, tenant: &Tenant) -> Vec<UpstreamName> {
        self.tenants.get(tenant).map(|entry| entry.upstreams.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// What is wrong, by name.
    pub async fn ready(&self) -> Result<(), &'static str> {
        self.db.ping().await.map_err(|_| "the database does not answer")
    }

    /// The policy of a tenant that is in force.
    pub fn policy(&self, tenant: &Tenant) -> Option<Arc<Policy>> {
        self.tenants.get(tenant).map(|entry| entry.policy.load_full())
    }

    /// Puts another policy in force; a call under way goes on with the one that it began with. A tenant that is not
    /// there waits for the next start.
    pub fn put_policy(&self, tenant: &Tenant, policy: Arc<Policy>) {
        if let Some(entry) = self.tenants.get(tenant) {
            entry.policy.store(policy);
        }
    }

    /// Puts other token keys in force.
    pub fn put_keys(&self, keys: TokenKeys) {
        self.keys.store(Arc::new(keys));
    }

    /// Puts other clients of the chat installations in force.
    pub fn put_chats(&self, chats: Chats) {
        self.chats.store(Arc::new(chats));
    }

    /// Notes how the last reload went: what of it is not in force, and why.
    pub fn reloaded(&self, fault: Option<String>) {
        self.0.reload_fault.store(fault.map(Arc::new));
    }

    /// What the last reload left.
    pub fn reload_fault(&self) -> Option<Arc<String>> {
        self.0.reload_fault.load_full()
    }

    fn upstream(&self, tenant: &Tenant, upstream: &UpstreamName) -> Option<(&TenantEntry, &UpstreamEntry)> {
        let entry = self.tenants.get(tenant)?;
        Some((entry, entry.upstreams.get(upstream)?))
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }

    /// Tells the tenant's `alert_to` something about an action. A failure is logged: what it is about stands in the
    /// audit trail all the same.
    async fn alert(&self, tenant: &Tenant, action: ActionId, text: &str) {
        let Some(entry) = self.tenants.get(tenant) else { return };
        let policy = entry.policy.load_full();
        if let Err(error) = self.db.queue_alert(action, tenant, &policy.limits().alert_to, text).await {
            tracing::error!(%tenant, %action, %error, "an alert could not be queued");
        }
    }
}
