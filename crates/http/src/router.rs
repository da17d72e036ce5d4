//! Which paths there are.

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};

use crate::handle::NodeHandle;
use crate::{access, intake, routes};

/// The operator routes over one node, and what every request passes through.
///
/// Documented routes that come with a later version answer 501 and say so; a path that no version knows is 404, a
/// method that its path does not have is 405.
pub fn router<H: NodeHandle>(handle: H) -> Router {
    let router = Router::new()
        .route("/healthz", get(routes::healthz::answer::<H>))
        .route("/readyz", get(routes::readyz::answer::<H>))
        .route("/metrics", get(routes::metrics::answer::<H>))
        .route("/stats", get(routes::stats::answer::<H>))
        .route("/v1/topics", get(routes::topics::answer::<H>))
        .route(
            "/v1/topics/{topic}",
            get(routes::topic::answer::<H>)
                .patch(routes::change_topic::answer::<H>)
                .delete(routes::delete_topic::answer::<H>),
        )
        .route("/v1/topics/{topic}/groups", get(routes::groups::answer::<H>))
        .route(
            "/v1/topics/{topic}/groups/{group}",
            get(routes::group::answer::<H>)
                .patch(routes::change_group::answer::<H>)
                .delete(routes::delete_group::answer::<H>),
        )
        .route("/v1/topics/{topic}/groups/{group}/seek", post(routes::seek::answer::<H>))
        .route("/v1/topics/{topic}/purge", post(routes::purge::answer::<H>))
        .route("/v1/topics/{topic}/peek", get(routes::peek::answer::<H>))
        .route("/v1/topics/{topic}/dlq", get(routes::dlq::answer::<H>).post(routes::letters::answer::<H>))
        .route("/v1/topics/{topic}/trace", get(routes::trace::answer::<H>))
        .route("/v1/balance", get(routes::balance::answer::<H>))
        .route("/v1/defaults", get(routes::defaults::answer::<H>).patch(routes::change_defaults::answer::<H>))
        .route("/v1/broker", get(routes::broker::answer::<H>))
        .route("/v1/cluster/leader", get(routes::leader::answer::<H>))
        .route("/v1/cluster/leader/transfer", post(routes::hand_over::answer::<H>))
        .route("/v1/cluster/members", get(routes::members::answer::<H>))
        .route("/v1/cluster/members/{id}/readmit", post(routes::readmit::answer::<H>));
    routes::absent::add(router)
        .fallback(intake::unknown_path)
        .method_not_allowed_fallback(intake::wrong_method)
        .layer(middleware::from_fn_with_state(handle.clone(), access::check::<H>))
        .layer(middleware::from_fn(intake::check))
        .with_state(handle)
}
