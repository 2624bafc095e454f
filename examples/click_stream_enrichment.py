"""Click-stream enrichment: page views get the profile of their user, and what the user searched for a second around."""

from dataclasses import dataclass, replace

from penstock import Consumed, JoinWindows, KafkaStreams, Materialized, Produced, Serdes, StreamJoined, StreamsBuilder


@dataclass(frozen=True)
class PageView:
    page: str


@dataclass(frozen=True)
class Search:
    terms: str


@dataclass(frozen=True)
class UserProfile:
    name: str
    zipcode: str
    interests: list[str]


@dataclass(frozen=True)
class UserActivity:
    page: str
    profile: UserProfile | None
    search_terms: str = ""

    def update_search(self, search: Search | None) -> "UserActivity":
        return self if search is None else replace(self, search_terms=search.terms)


config = {"application.id": "clicks", "default.key.serde": Serdes.integer()}
users, activity = Serdes.integer(), Serdes.json(UserActivity)

builder = StreamsBuilder()
views = builder.stream("clicks.pages.views", Consumed.with_(value_serde=Serdes.json(PageView)))
searches = builder.stream("clicks.search", Consumed.with_(value_serde=Serdes.json(Search)))
by_user = Consumed.with_(value_serde=Serdes.json(UserProfile))
profiles = builder.table("clicks.user.profile", by_user, Materialized.as_("profile-store"))
views_with_profile = views.left_join(profiles, lambda view, profile: UserActivity(view.page, profile))
user_activity = views_with_profile.left_join(
    searches,
    UserActivity.update_search,
    JoinWindows.of_time_difference_with_no_grace(1000),
    stream_joined=StreamJoined.with_(key_serde=users, value_serde=activity, other_value_serde=Serdes.json(Search)),
)
user_activity.to("clicks.user.activity", Produced.with_(value_serde=activity))
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
