//! A call arrives: it is relayed, refused, redeemed, or parked.

use serde_json::{Map, Value};

use super::ports::{Passing, Relayed};
use super::redeem::too_many_wrong;
use super::schema::SchemaFault;
use super::{App, Caller, Reply, ToolCall, UpstreamEntry};
use crate::domain::answer::{Answer, Code, clock};
use crate::domain::audit::{Erasable, Event};
use crate::domain::call::{ArgumentFault, Arguments, TOKEN_ARGUMENT, ToolDefinition};
use crate::domain::digest::Binding;
use crate::domain::ids::ActionId;
use crate::domain::place::Place;
use crate::domain::policy::{Allowed, CallFacts, Decision, Gate, Limits, Policy};
use crate::domain::token;
use crate::domain::visible::visible;
use crate::storage::{self, AskLimit, NewAction, Parked};

/// The longest run id that is bound, in bytes.
const MAX_RUN: usize = 128;

/// The token as an agent presented it.
pub(super) enum Presented {
    /// None.
    Absent,
    /// A string that may be one.
    Token(String),
    /// Something that can't be one.
    Nonsense,
}

impl App {
    /// A `tools/call`: relayed, refused, parked, or redeemed. Runs detached from the client's connection.
    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Reply {
        let (app, caller) = (self.clone(), caller.clone());
        let work = self.tasks.spawn(async move { app.submit(caller, call).await });
        // A task that panicked may have got as far as the upstream: doubt is not called nothing.
        work.await.unwrap_or_else(|_| Answer::plain(Code::OutcomeUnknown).into())
    }

    async fn submit(&self, caller: Caller, mut call: ToolCall) -> Reply {
        let Some((tenant, upstream)) = self.upstream(&caller.tenant, &call.upstream) else {
            return Reply::UnknownTool;
        };
        let Some(mut arguments) = lenient(call.arguments.as_deref()) else {
            return Answer::plain(Code::InvalidArguments).detail("They must be one JSON object.").into();
        };
        let presented = presented(arguments.get(TOKEN_ARGUMENT), call.token.as_ref());
        let own_token = arguments.remove(TOKEN_ARGUMENT);
        let policy = tenant.policy.load_full();
        let decision = policy.decide(&facts(&caller, &call, upstream, &arguments));
        match (decision, presented) {
            (Decision::Allow(permit), _) => {
                // Only a token of ours is taken off; any other value is the tool's own business.
                if let Some(value) = own_token
                    && !value.as_str().is_some_and(|text| text.starts_with(token::PREFIX))
                {
                    arguments.insert(TOKEN_ARGUMENT.to_owned(), value);
                }
                let passing = std::mem::take(&mut call.passing);
                self.relay(upstream, &permit, &call, arguments, passing).await
            }
            // The agent may have begun where policy allowed it, or have made the state up.
            _ if call.passing.request_state.is_some() => Reply::StateRejected,
            (_, Presented::Nonsense) => {
                if let Some(left) = self.0.wrong_tokens.closed(&caller) {
                    return too_many_wrong(left).into();
                }
                self.0.wrong_tokens.count(&caller);
                Answer::plain(Code::InvalidToken).into()
            }
            // Also where policy has come to deny: the redemption says so.
            (_, Presented::Token(token)) => self.redeem(&caller, &call, &token).await,
            (Decision::RequireApproval(gate), Presented::Absent) => {
                self.propose(&caller, call, &policy, upstream, &gate).await
            }
            (Decision::Deny { .. } | Decision::NotAllowed, Presented::Absent) => {
                self.refuse(upstream, &call).await
            }
        }
    }

    async fn relay(
        &self,
        upstream: &UpstreamEntry,
        permit: &Allowed,
        call: &ToolCall,
        arguments: Map<String, Value>,
        passing: Passing,
    ) -> Reply {
        match upstream.port.relay(permit, &call.tool, arguments, passing).await {
            Relayed::Result(result) => Reply::Upstream(result),
            Relayed::InputRequired(asked) => Reply::InputRequired(asked),
            Relayed::Error { code, message, data } => Reply::UpstreamError { code, message, data },
            Relayed::NotSent => Answer::plain(Code::Unavailable)
                .detail("The upstream can't be reached; nothing was sent.")
                .into(),
            Relayed::Unknown => Answer::plain(Code::OutcomeUnknown)
                .detail("The call was sent and the upstream gave no answer.")
                .into(),
        }
    }

    /// A tool that exists nowhere is a protocol error; one that exists is not allowed.
    async fn refuse(&self, upstream: &UpstreamEntry, call: &ToolCall) -> Reply {
        match upstream.port.tools().await {
            Ok(tools) if !tools.iter().any(|tool| tool.name == call.tool) => Reply::UnknownTool,
            _ => Answer::plain(Code::NotAllowed).into(),
        }
    }

    async fn propose(
        &self,
        caller: &Caller,
        call: ToolCall,
        policy: &Policy,
        upstream: &UpstreamEntry,
        gate: &Gate,
    ) -> Reply {
        let arguments = match Arguments::parse(call.arguments.as_deref()) {
            Ok(read) => read.arguments,
            Err(fault) => return argument_refusal(&fault).into(),
        };
        if call.run.as_ref().is_some_and(|run| run.len() > MAX_RUN || run.chars().any(char::is_control)) {
            let detail =
                "_meta dev.undersign/run must have at most 128 characters and no control characters.";
            return Answer::plain(Code::UnsupportedValue).detail(detail).into();
        }
        let Ok(tools) = upstream.port.tools().await else {
            return Answer::plain(Code::Unavailable).detail("The upstream can't be reached.").into();
        };
        let Some(definition) = tools.into_iter().find(|tool| tool.name == call.tool) else {
            return Reply::UnknownTool;
        };
        if definition.owns_token_argument() {
            return Answer::plain(Code::NotAllowed).into();
        }
        match self.validate(&definition, &arguments).await {
            Ok(()) => {}
            Err(SchemaFault::Unfit(place)) => {
                return Answer::plain(Code::InvalidArguments)
                    .detail(format!("The fault is at {place}."))
                    .into();
            }
            Err(SchemaFault::Unusable) => {
                return Answer::plain(Code::Unavailable)
                    .detail("The tool's input schema can't be used to check arguments.")
                    .into();
            }
        }
        match self.park(caller, &call, policy, upstream, gate, arguments, &definition).await {
            Ok(answer) => answer.into(),
            Err(error) => {
                tracing::error!(tenant = %caller.tenant, agent = %caller.agent, %error, "parking failed");
                Answer::plain(Code::Unavailable).into()
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one binding, each of another origin")]
    async fn park(
        &self,
        caller: &Caller,
        call: &ToolCall,
        policy: &Policy,
        upstream: &UpstreamEntry,
        gate: &Gate,
        arguments: Arguments,
        definition: &ToolDefinition,
    ) -> storage::Result<Answer> {
        let tool = format!("{}/{}", call.upstream, call.tool);
        let preview = gate.preview(&arguments, policy.thresholds(), &tool);
        if let Err(too_large) = preview.check_size() {
            return Ok(Answer::plain(Code::TooLargeToPreview).detail(format!("{too_large}.")));
        }
        let binding = Binding {
            action: ActionId::fresh(&*self.clock, &*self.entropy),
            tenant: caller.tenant.clone(),
            agent: caller.agent.clone(),
            owner: caller.owner.clone(),
            run: call.run.clone(),
            upstream: call.upstream.clone(),
            environment: upstream.environment.clone(),
            tool: call.tool.clone(),
            tool_version: definition.version,
            arguments,
            policy_version: gate.policy_version,
            requirement: gate.requirement.clone(),
            preconditions: Map::new(),
        };
        let (digest, content) = (binding.action_digest(), binding.content_digest());
        let shown = serde_json::to_value(&preview).unwrap_or_default();
        let erasable = Erasable::new(&binding.subject(), &shown, &Value::Object(Map::new()), self.random());
        let event = Event::Parked {
            action_digest: digest.to_string(),
            content_digest: content.to_string(),
            rules: gate.rules.clone(),
            risk: gate.risk.as_str(),
            requirement: gate.requirement.clone(),
            post_to: gate.post_to.iter().map(Place::to_string).collect(),
            commitment: erasable.commitment(),
        };
        let new = NewAction {
            binding: &binding,
            digest,
            content,
            preview: &preview,
            rules: &gate.rules,
            risk: gate.risk,
            post_to: &gate.post_to,
            expires: gate.expires,
            redeem_within: gate.redeem_within,
            cosmetic: gate.cosmetic.digest(&binding),
            limits: policy.limits(),
            event: &event,
            erasable: &erasable,
        };
        let turn = self.turn(caller).await;
        let parked = self.db.park(&new).await?;
        let id = match parked {
            Parked::New => binding.action,
            Parked::Standing(id) | Parked::Denied(id) | Parked::DeniedRecently(id) => id,
            Parked::Limited(limit) => {
                tracing::info!(tenant = %caller.tenant, agent = %caller.agent, ?limit, "an ask was refused");
                return Ok(limited(limit, policy.limits()));
            }
        };
        tracing::info!(tenant = %caller.tenant, agent = %caller.agent, action = %id, new = (parked == Parked::New), "parked");
        let found = self.db.action(&caller.tenant, id).await?;
        drop(turn);
        match found {
            Some(action) if matches!(parked, Parked::DeniedRecently(_)) => {
                Ok(self.about(&action, Code::DeniedRecently))
            }
            Some(action) => self.answer(&action).await,
            None => Ok(Answer::plain(Code::Unavailable)),
        }
    }
}

/// Which limit was met, and when to come back.
fn limited(limit: AskLimit, limits: &Limits) -> Answer {
    let detail = match limit {
        AskLimit::Paused(until) => {
            let until = until.map_or_else(|| "shortly".to_owned(), |until| format!("at {}", clock(until)));
            format!("This agent is paused because of its denials; it may ask again {until}.")
        }
        AskLimit::AsksPerMinute => {
            format!("An agent may ask for {} new approvals a minute.", limits.asks_per_minute)
        }
        AskLimit::PendingPerAgent => format!(
            "An agent may have {} approvals pending; wait for one of yours, or withdraw one with undersign_cancel.",
            limits.pending_per_agent
        ),
        AskLimit::PendingPerOwner => {
            "The agents of this owner have as many approvals pending as they may.".to_owned()
        }
        AskLimit::PendingPerGroup => {
            "The people to be asked have as many approvals pending as they may.".to_owned()
        }
    };
    Answer::plain(Code::RateLimited).detail(detail)
}

/// What policy is told of a call, whenever it is asked.
pub(super) fn facts<'a>(
    caller: &'a Caller,
    call: &'a ToolCall,
    upstream: &'a UpstreamEntry,
    arguments: &'a Map<String, Value>,
) -> CallFacts<'a> {
    CallFacts {
        agent: &caller.agent,
        owner: caller.owner.as_ref(),
        upstream: &call.upstream,
        upstream_address: &upstream.address,
        environment: upstream.environment.as_deref(),
        tool: &call.tool,
        arguments,
    }
}

/// The arguments as any parser reads them: policy looks at these before anything is gated.
fn lenient(raw: Option<&[u8]>) -> Option<Map<String, Value>> {
    match serde_json::from_slice(raw.unwrap_or(b"{}")) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

fn presented(argument: Option<&Value>, meta: Option<&Value>) -> Presented {
    let given = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    match (given(argument), given(meta)) {
        (None, None) => Presented::Absent,
        (Some(a), Some(b)) if a != b => Presented::Nonsense,
        (Some(Value::String(text)), _) | (None, Some(Value::String(text))) => Presented::Token(text),
        _ => Presented::Nonsense,
    }
}

fn argument_refusal(fault: &ArgumentFault) -> Answer {
    let code = match fault {
        ArgumentFault::TooLarge => Code::TooLargeToPreview,
        ArgumentFault::NotAnObject | ArgumentFault::Malformed(_) => Code::InvalidArguments,
        ArgumentFault::Unsupported(_) => Code::UnsupportedValue,
    };
    let mut detail = fault.to_string();
    if let ArgumentFault::Unsupported(fault) = fault {
        detail = format!("{}. It is at {}", detail.trim_end_matches('.'), visible(fault.pointer().as_str()));
    }
    let mut sentence = detail.clone();
    if let Some(first) = detail.chars().next() {
        sentence = first.to_uppercase().collect::<String>() + &detail[first.len_utf8()..];
    }
    Answer::plain(code).detail(format!("{}.", sentence.trim_end_matches('.')))
}
