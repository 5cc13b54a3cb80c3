# Tercet on a CPU.
#
#   docker build --tag tercet .
#   docker run --rm --volume "$PWD:/work" tercet pretrain encoder-demo
#
# Everything is installed in one stage, and only the environment is copied into the image: neither pip's cache nor the sources.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/tercet
COPY constraints.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    torch="$(sed -n '/^torch==/p' constraints.txt)" \
    && /opt/tercet/bin/pip install --index-url https://download.pytorch.org/whl/cpu "$torch"
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/tercet/bin/pip install --constraint constraints.txt .

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 tercet
COPY --from=build /opt/tercet /opt/tercet
ENV PATH="/opt/tercet/bin:$PATH" \
    PYTHONUNBUFFERED=1 \
    TERCET_CACHE=/home/tercet/.cache/tercet
USER tercet
WORKDIR /work
ENTRYPOINT ["tercet"]
CMD ["--help"]
