# docker build -t calculator . && docker run --rm -p 8501:8501 calculator
FROM python:3.12-slim AS build
COPY requirements.txt .
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore -r requirements.txt

FROM python:3.12-slim
# The page writes nothing, so it gets a user that owns nothing and has no home; compiled files come with the copy.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/nonexistent \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_SERVER_PORT=8501 \
    STREAMLIT_SERVER_FILE_WATCHER_TYPE=none
COPY --from=build /opt/venv /opt/venv
WORKDIR /app
COPY .streamlit/config.toml .streamlit/
COPY app.py ./
COPY calc/ calc/
COPY gpu/ gpu/
COPY presets/ presets/
COPY ui/ ui/
RUN python -m compileall -q app.py calc ui
USER 65534:65534
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["streamlit", "run", "ui/server.py"]
