//! The shop's tools and what they do.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// `A-17`.
    pub order_id: String,
    /// `C-3`.
    pub customer_id: String,
    /// What was bought.
    pub item: String,
    /// What was paid, in cents.
    pub paid_cents: u64,
    /// What was given back so far, in cents.
    pub refunded_cents: u64,
}

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Money went back.
    Refunded {
        /// The order.
        order_id: String,
        /// How much, in cents.
        amount_cents: u64,
        /// The reason given.
        note: Option<String>,
    },
    /// A customer and all their orders are gone.
    CustomerDeleted {
        /// The customer.
        customer_id: String,
    },
    /// A version of a service went out.
    Deployed {
        /// The service.
        service: String,
        /// Its version.
        version: String,
        /// Where to.
        environment: String,
    },
}

/// What the shop holds.
#[derive(Debug)]
pub(super) struct Goods {
    pub(super) orders: BTreeMap<String, Order>,
    pub(super) effects: Vec<Effect>,
}

/// Why a tool did nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No such tool.
    UnknownTool,
    /// The arguments are not those of the tool.
    Arguments,
    /// The shop says no, in words for the caller.
    Refused(String),
}

/// What a tool answers: text, and structured content where the tool has an output schema.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) structured: Option<Value>,
}

impl Answer {
    fn json(value: &impl Serialize) -> Result<Self, Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::Refused(error.to_string()))?;
        Ok(Self { text, structured: None })
    }

    fn text(text: String) -> Self {
        Self { text, structured: None }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetOrder {
    order_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundOrder {
    order_id: String,
    amount_cents: u64,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteCustomer {
    customer_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deploy {
    service: String,
    version: String,
    environment: String,
}

impl Goods {
    /// The orders that the demo and the tests start from.
    pub(super) fn seeded() -> Self {
        let order = |order_id: &str, customer_id: &str, item: &str, paid_cents| Order {
            order_id: order_id.to_owned(),
            customer_id: customer_id.to_owned(),
            item: item.to_owned(),
            paid_cents,
            refunded_cents: 0,
        };
        let orders = [
            order("A-17", "C-3", "espresso machine", 48_900),
            order("A-18", "C-3", "paper filters", 1_250),
            order("B-02", "C-8", "grinder", 12_900),
        ];
        Self { orders: orders.into_iter().map(|o| (o.order_id.clone(), o)).collect(), effects: Vec::new() }
    }

    /// Does what the tool does.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Result<Answer, Failure> {
        match tool {
            "get_order" => {
                let GetOrder { order_id } = read(arguments)?;
                Answer::json(self.order(&order_id)?)
            }
            "list_orders" => {
                let Nothing {} = read(arguments)?;
                Answer::json(&self.orders.values().collect::<Vec<_>>())
            }
            "refund_order" => self.refund(read(arguments)?),
            "delete_customer" => {
                let DeleteCustomer { customer_id } = read(arguments)?;
                let before = self.orders.len();
                self.orders.retain(|_, order| order.customer_id != customer_id);
                let gone = before - self.orders.len();
                if gone == 0 {
                    return Err(Failure::Refused(format!("there is no customer {customer_id}")));
                }
                let text = format!("Deleted customer {customer_id} with {gone} orders.");
                self.effects.push(Effect::CustomerDeleted { customer_id });
                Ok(Answer::text(text))
            }
            "deploy" => {
                let Deploy { service, version, environment } = read(arguments)?;
                if !["staging", "production"].contains(&environment.as_str()) {
                    return Err(Failure::Arguments);
                }
                let text = format!("Deployed {service} {version} to {environment}.");
                self.effects.push(Effect::Deployed { service, version, environment });
                Ok(Answer::text(text))
            }
            _ => Err(Failure::UnknownTool),
        }
    }

    fn refund(&mut self, wanted: RefundOrder) -> Result<Answer, Failure> {
        let RefundOrder { order_id, amount_cents, note } = wanted;
        self.order(&order_id)?;
        let Some(order) = self.orders.get_mut(&order_id) else { return Err(Failure::UnknownTool) };
        let remaining = order.paid_cents - order.refunded_cents;
        if amount_cents == 0 || amount_cents > remaining {
            return Err(Failure::Refused(format!("{order_id} has {remaining} cents left to refund")));
        }
        order.refunded_cents += amount_cents;
        let structured = json!({
            "order_id": order_id, "refunded_cents": amount_cents, "remaining_cents": remaining - amount_cents,
        });
        self.effects.push(Effect::Refunded { order_id, amount_cents, note });
        Ok(Answer { text: structured.to_string(), structured: Some(structured) })
    }

    fn order(&self, order_id: &str) -> Result<&Order, Failure> {
        self.orders.get(order_id).ok_or_else(|| Failure::Refused(format!("there is no order {order_id}")))
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, Failure> {
    serde_json::from_value(arguments).map_err(|_| Failure::Arguments)
}

/// The tools as `tools/list` shows them.
pub(super) fn definitions() -> Vec<Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let order_id = || json!({"type": "string", "description": "Order number", "pattern": "^[A-Z]-[0-9]+$"});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let reads = || json!({"readOnlyHint": true, "openWorldHint": false});
    let cents = |description: &str| json!({"type": "integer", "minimum": 0, "description": description});
    vec![
        json!({
            "name": "get_order", "title": "Look up an order", "description": "One order with what was paid and refunded.",
            "inputSchema": object(json!({"order_id": order_id()}), &["order_id"]), "annotations": reads(),
        }),
        json!({
            "name": "list_orders", "title": "List orders", "description": "All orders.",
            "inputSchema": object(json!({}), &[]), "annotations": reads(),
        }),
        json!({
            "name": "refund_order", "title": "Refund an order",
            "description": "Sends money back to the customer. It cannot be taken back.",
            "inputSchema": object(
                json!({
                    "order_id": order_id(),
                    "amount_cents": {"type": "integer", "minimum": 1, "description": "How much, in cents"},
                    "note": text("Reason, shown to the customer"),
                }),
                &["order_id", "amount_cents"],
            ),
            "outputSchema": object(
                json!({
                    "order_id": order_id(), "refunded_cents": cents("Given back now"),
                    "remaining_cents": cents("Left to refund"),
                }),
                &["order_id", "refunded_cents", "remaining_cents"],
            ),
            "annotations": {
                "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true,
            },
        }),
        json!({
            "name": "delete_customer", "title": "Delete a customer",
            "description": "Deletes a customer and all their orders.",
            "inputSchema": object(json!({"customer_id": text("Customer number")}), &["customer_id"]),
            "annotations": {
                "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false,
            },
        }),
        json!({
            "name": "deploy", "title": "Deploy a service", "description": "Puts a version of a service into use.",
            "inputSchema": object(
                json!({
                    "service": text("Name of the service"), "version": text("Version to deploy"),
                    "environment": {"type": "string", "enum": ["staging", "production"]},
                }),
                &["service", "version", "environment"],
            ),
            "annotations": {
                "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true,
            },
        }),
    ]
}
