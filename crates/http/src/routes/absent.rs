//! Documented routes that come with a later version: they answer 501 and name themselves, so that nobody takes them for
//! a typing error. A route that is built leaves this list.

use axum::Router;
use axum::routing::{MethodFilter, on};

use crate::handle::NodeHandle;
use crate::refusal::Refusal;

const GET: (MethodFilter, &str) = (MethodFilter::GET, "GET");
const POST: (MethodFilter, &str) = (MethodFilter::POST, "POST");
const PUT: (MethodFilter, &str) = (MethodFilter::PUT, "PUT");
const DELETE: (MethodFilter, &str) = (MethodFilter::DELETE, "DELETE");

/// Method and path of each.
const ROUTES: &[((MethodFilter, &str), &str)] = &[
    (POST, "/v1/topics"),
    (GET, "/v1/topics/{topic}/schema"),
    (POST, "/v1/topics/{topic}/produce"),
    (POST, "/v1/topics/{topic}/produce/batch"),
    (GET, "/v1/topics/{topic}/consume"),
    (POST, "/v1/topics/{topic}/ack"),
    (GET, "/v1/topics/{topic}/children"),
    (POST, "/v1/topics/{topic}/children"),
    (DELETE, "/v1/topics/{topic}/children/{child}"),
    (POST, "/v1/topics/{topic}/children/{child}/pause"),
    (POST, "/v1/topics/{topic}/children/{child}/resume"),
    (POST, "/v1/topics/{topic}/children/{child}/skip"),
    (GET, "/v1/users"),
    (POST, "/v1/users"),
    (GET, "/v1/users/{username}"),
    (DELETE, "/v1/users/{username}"),
    (PUT, "/v1/users/{username}/grants"),
    (PUT, "/v1/users/{username}/password"),
    (POST, "/v1/cluster/members/{id}/decommission"),
    (DELETE, "/v1/cluster/members/{id}/decommission"),
    (POST, "/v1/cluster/members/{id}/forget"),
    (GET, "/v1/cluster/moves"),
    (POST, "/v1/cluster/moves/{topic}/{partition}/abort"),
    (POST, "/v1/cluster/reencrypt-remotes"),
    (GET, "/v1/remotes"),
    (POST, "/v1/remotes"),
    (GET, "/v1/remotes/{name}"),
    (DELETE, "/v1/remotes/{name}"),
    (POST, "/v1/remotes/{name}/test"),
    (GET, "/v1/openapi.json"),
];

/// Adds them all to the router.
pub(crate) fn add<H: NodeHandle>(router: Router<H>) -> Router<H> {
    ROUTES.iter().fold(router, |router, ((filter, method), path)| {
        router.route(path, on(*filter, move || async move { Refusal::absent(method, path) }))
    })
}
