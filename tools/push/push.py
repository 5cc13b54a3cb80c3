"""Sending a model to the Hub, in one commit: nobody who loads it meanwhile gets half of it.

Large files go ahead of the commit, by their hashes: of an interrupted push, what has arrived is not sent
again, and an unchanged file never is. The token is what `huggingface_hub` finds (`HF_TOKEN`, or what
`hf auth login` stored), and no message holds it.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from ...configs.messages import first_line, shortened
from .publication import Publication, may_be_of_model


def push(
    publication: Publication,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Send a publication, and return the address of the commit.

    What an earlier push has left and programs would read with the model is deleted, and named in a warning.

    Args:
        publication: From `prepare`.
        private: Whether a repository that is made for it is private; one that exists must be.
        revision: Branch to commit to, made if there is none; `main` if left out.

    Raises:
        ValueError: There is no token, or it does not suffice, or the repository is not as it should be.
        ConnectionError: The Hub cannot be reached, or the connection broke off.
    """
    token = require_token()
    repo, repo_type = publication.repo, publication.repo_type
    api = HfApi(library_name="tercet")
    with explaining(publication.address, token):
        api.create_repo(
            repo,
            repo_type=repo_type,
            space_sdk="gradio" if repo_type == "space" else None,
            private=private or None,
            exist_ok=True,
        )
        is_private = api.repo_info(repo, repo_type=repo_type).private
    if private and not is_private:
        raise ValueError(
            f"{publication.address} exists and is public: make it private in its settings, or leave "
            "--private out"
        )
    with explaining(publication.address, token):
        if revision is not None:
            api.create_branch(repo, repo_type=repo_type, branch=revision, exist_ok=True)
        outdated = outdated_files(api, publication, revision)
        commit = api.create_commit(
            repo,
            [
                *(CommitOperationAdd(file.path, file.source) for file in publication.files),
                *map(CommitOperationDelete, outdated),
            ],
            commit_message=message or f"Push with Tercet {version('tercet')}",
            repo_type=repo_type,
            revision=revision,
        )
    if outdated:
        warnings.warn(
            f"{publication.address}: deleted what an earlier push left and programs would read with this "
            f"model: {shortened(outdated)}",
            stacklevel=2,
        )
    return str(commit.commit_url)


def outdated_files(api: HfApi, publication: Publication, revision: str | None) -> list[str]:
    """List what the repository has, the publication has not, and programs would read with the model."""
    sent = {file.path for file in publication.files}
    names = api.list_repo_files(publication.repo, repo_type=publication.repo_type, revision=revision)
    return [name for name in names if name not in sent and may_be_of_model(name)]


def branches_of(repo: str) -> set[str]:
    """List the branches of a repository of models; none if there is no such repository."""
    with explaining(repo, require_token()):
        try:
            return {branch.name for branch in HfApi(library_name="tercet").list_repo_refs(repo).branches}
        except RepositoryNotFoundError:
            return set()


def make_repository(repo: str) -> None:
    with explaining(repo, require_token()):
        HfApi(library_name="tercet").create_repo(repo, private=True, exist_ok=True)


def require_token() -> str:
    """Return the token for the Hub, or raise a `ValueError` if there is none."""
    if (token := get_token()) is None:
        raise ValueError("there is no token for the Hub: run `hf auth login`, or set HF_TOKEN")
    return token


@contextmanager
def explaining(repo: str, token: str) -> Iterator[None]:
    """Describe in one line what went wrong between here and the Hub, without the token."""
    try:
        yield
    except Exception as error:  # whatever a network and a Hub may do
        explained = explanation(error, repo)
        said = str(explained)
        for spelling in (token, repr(token)[1:-1]):
            said = said.replace(spelling, "***")
        # Without the cause and its traceback: a malformed header is quoted there, token and all.
        raise type(explained)(said) from None


def explanation(error: Exception, repo: str) -> ValueError | ConnectionError:
    """Turn what the client raised into an error that says what to do."""
    refusal = find_refusal(error)
    if refusal is None:
        return ConnectionError(
            f"the Hub could not be reached, or the connection broke off ({first_line(error)}): push again, "
            "and what has arrived is not sent again"
        )
    status = refusal.response.status_code
    if status == 401:
        return ValueError(
            "the Hub does not accept the token: create one at https://huggingface.co/settings/tokens, then "
            "run "
            "`hf auth login` or set HF_TOKEN"
        )
    if status in {403, 404}:
        return ValueError(
            f"the token has no write access to {repo}, or {repo} does not exist and the token may not "
            f"create it: use a token with write access, or another owner/name"
        )
    if status == 400:
        return ValueError(f"the Hub refuses the upload to {repo}: {' '.join(str(error).split())}")
    said = refusal.server_message or first_line(refusal)
    return ConnectionError(f"the Hub refused {repo} (status {status}: {said}): push again later")


def find_refusal(error: BaseException | None) -> HfHubHTTPError | None:
    """Find the Hub's answer behind an error."""
    while error is not None:
        if isinstance(error, HfHubHTTPError):
            return error
        error = error.__cause__ or error.__context__
    return None
